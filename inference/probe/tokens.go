package probe

import (
	"context"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
)

// AskTokens asks a server for one turn as tokens. Its error is the context's
// or an *inference.Failure.
type AskTokens func(ctx context.Context, conv inference.Conversation,
	fit func(prompt int) (most int, full *inference.Failure)) (*inference.Response, error)

// tokensAdvice is how a server serves the path of tokens.
const tokensAdvice = "start vLLM 0.33 or later with --enable-scale-out, SGLang 0.5.23 or later, or llama.cpp with --jinja and no draft model; or leave endpoint_api out of the run file"

// Tokens asks a server for two turns as tokens, as a run with endpoint_api tokens would.
func Tokens(ctx context.Context, ask AskTokens, model string, s runfile.Sampling) []Finding {
	const check = "tokens in"
	p := &prober{model: model, sampling: s}
	turn := func(conv inference.Conversation) (t events.TurnSampled, prompt []int32, ok bool) {
		answer, err := ask(ctx, conv, func(int) (int, *inference.Failure) { return conv.Request.MaxTokens, nil })
		if err == nil {
			t, prompt, err = answer.Turn(0, 0, time.Now())
		}
		if err != nil || prompt == nil {
			p.add(Trouble, check, tokensAdvice, "turns cannot be asked for by tokens: %v (%v)", err, t.Lacks)
			return t, nil, false
		}
		return t, prompt, true
	}
	messages := question()
	first, prompt, ok := turn(inference.Conversation{Request: p.request(messages, "")})
	if !ok {
		return p.findings
	}
	known := slices.Concat(prompt, first.TokenIDs)
	first.PromptDelta, first.Sampling = prompt, &s
	sample := inference.SampledOf(&first, 0)
	sample.Message = len(messages)
	_, after, ok := turn(inference.Conversation{Request: p.request(follow(messages, first), ""), Known: known,
		Samples: []inference.Sampled{sample}})
	switch {
	case !ok:
	case len(after) < len(known) || !slices.Equal(after[:len(known)], known):
		p.add(Warning, check,
			"ask with a longer max_tokens and no stop texts; where that does not help, the chat template writes history in a way that cannot be told apart, and chat serves it as well",
			"the second turn's prompt is a rendering of all messages, so that every turn is a sample of its own")
	default:
		p.add(OK, check, "",
			"the second turn's prompt is the first one, what was sampled, and %d tokens of new messages",
			len(after)-len(known))
	}
	return p.findings
}
