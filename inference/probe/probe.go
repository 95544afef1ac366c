// Package probe finds out what an inference server gives of what training needs, before a
// run burns inference on it.
package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
)

// Ask sends a request to the server. Its error is the context's or an *inference.Failure.
type Ask func(ctx context.Context, request any) (*inference.Response, error)

// Levels of a finding.
const (
	OK      = "ok"
	Warning = "warning" // training works, but not as well as it could
	Trouble = "trouble" // nothing, or something wrong, would be trained on
)

// Finding is what one check found, and what helps.
type Finding struct {
	Check string `json:"check"`
	Level string `json:"level"`
	Found string `json:"found"`
	Do    string `json:"do,omitempty"`
}

// Advice, by what a server lacks.
var advice = map[string]string{
	events.LackPromptIDs: "use vLLM 0.10.2 or later, or SGLang 0.5.13 or later: both answer with prompt_token_ids when they are asked for them; " +
		"llama.cpp gives them to runs with endpoint_api: tokens alone; OpenAI does not, and serves evaluations only",
	events.LackIDs:       "use vLLM 0.10.2 or later, or SGLang 0.5.13 or later: both answer with the ids of the sampled tokens when they are asked for them",
	events.LackLogprobs:  "allow log-probabilities: a proxy in between may drop them, and vLLM refuses them with --max-logprobs 0",
	events.LackAgreement: "look for a proxy in between that changes answers, or update the server: ids, log-probabilities and usage of one answer must count the same tokens",
	events.LackTools:     "start vLLM with --enable-auto-tool-choice --tool-call-parser NAME, SGLang with --tool-call-parser NAME, llama.cpp with --jinja",
}

// prober is one look at a server.
type prober struct {
	ask      Ask
	model    string
	sampling runfile.Sampling
	findings []Finding
}

func (p *prober) add(level, check, do, format string, args ...any) {
	p.findings = append(p.findings, Finding{check, level, fmt.Sprintf(format, args...), do})
}

// Server asks a server for two turns with a tool, and for the distribution of its
// log-probabilities, as a run with such sampling would. The findings begin with "endpoint"; where
// that is trouble there are no others.
func Server(ctx context.Context, ask Ask, model string, s runfile.Sampling) []Finding {
	p := &prober{ask: ask, model: model, sampling: s}
	messages := question()
	first, err := p.turn(ctx, messages, "")
	if err != nil {
		p.failed(err)
		return p.findings
	}
	p.add(OK, "endpoint", "", "it answers as %s", model)
	turn, prompt, err := first.Turn(0, 0, time.Now())
	p.tokens(turn, err)
	p.tools(ctx, messages, first, turn)
	p.extends(ctx, messages, turn, prompt)
	p.distribution(ctx)
	p.label(first)
	return p.findings
}

// question is what the model is asked.
func question() []inference.Message {
	return []inference.Message{
		{Role: "system", Content: "You are a coding agent. Use the tools."},
		{Role: "user", Content: "Which files are in the current folder? Call the tool list_dir with the path \".\" to find out."},
	}
}

// turn asks for one turn, as the generator does.
func (p *prober) turn(ctx context.Context, messages []inference.Message, choice string) (*inference.Response, error) {
	answer, err := p.ask(ctx, p.request(messages, choice))
	if err == nil && len(answer.Choices) != 1 {
		return nil, fmt.Errorf("%d choices instead of 1", len(answer.Choices))
	}
	return answer, err
}

// maxTokens is the most tokens of an answer.
const maxTokens = 512

// request asks for one turn with a tool.
func (p *prober) request(messages []inference.Message, choice string) inference.Request {
	s := p.sampling
	s.MaxTokens = min(s.MaxTokens, maxTokens)
	return inference.Request{
		Model: p.model, Messages: messages, Sample: inference.NewSample(s), Seed: inference.NewSeed(s, 1),
		Extra: s.ExtraBody, ToolChoice: choice,
		Tools: []inference.Tool{{Type: "function", Function: inference.Description{
			Name: "list_dir", Description: "List the files of a folder.",
			Parameters: json.RawMessage(
				`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}`),
		}}},
		Logprobs: true, ReturnTokenIDs: true, ReturnPromptTokenIDs: true, ReturnMetaInfo: true,
		ReturnWeightVersions: true,
	}
}

// failed says why there is no first turn.
func (p *prober) failed(err error) {
	do := "see that the server runs, that the URL is its base URL (it mostly ends in /v1), and that it serves the model " + p.model
	var f *inference.Failure
	if errors.As(err, &f) {
		switch text := strings.ToLower(f.Error()); {
		case f.Status == 401 || f.Status == 403:
			do = "give the server's key, in RONDO_ENDPOINT_API_KEY or by --endpoint-keys"
		case strings.Contains(text, "tool-call-parser") || strings.Contains(text, "tool choice") ||
			strings.Contains(text, "--jinja"):
			p.add(Trouble, "tools", advice[events.LackTools], "the server refuses requests with tools: %.300s", f)
			return
		}
	}
	p.add(Trouble, "endpoint", do, "%.400s", err)
}

// tokens looks at what a turn can be trained on.
func (p *prober) tokens(turn events.TurnSampled, err error) {
	if err != nil {
		p.add(Trouble, "tokens", advice[events.LackAgreement], "%.300s", err)
		return
	}
	for _, check := range []struct{ lack, name, what string }{
		{events.LackPromptIDs, "prompt ids", "the ids of the prompt's tokens"},
		{events.LackIDs, "token ids", "the ids of the sampled tokens"},
		{events.LackLogprobs, "logprobs", "the log-probabilities of the sampled tokens"},
	} {
		if slices.Contains(turn.Lacks, check.lack) {
			p.add(Trouble, check.name, advice[check.lack],
				"the server does not give %s (%s): nothing can be trained on", check.what, check.lack)
			continue
		}
		p.add(OK, check.name, "", "the server gives %s", check.what)
	}
	if turn.TokensEstimated {
		p.add(Warning, "usage", "let the server answer with usage",
			"the server counts no tokens: limits and budgets by tokens count one for each %d bytes of text",
			events.BytesPerToken)
	}
	if !turn.TextOnly {
		p.add(OK, "usage", "", "it agrees with the tokens: %d of the prompt, %d sampled", turn.PromptTokens,
			turn.CompletionTokens)
	}
}

// tools looks whether the server reads the model's tool calls. A model that calls none is made to.
func (p *prober) tools(ctx context.Context, messages []inference.Message, first *inference.Response,
	turn events.TurnSampled) {
	switch {
	case len(turn.ToolCalls) > 0:
		p.add(OK, "tools", "", "the model called %s, and the server parsed it", turn.ToolCalls[0].Name)
		return
	case slices.Contains(turn.Lacks, events.LackTools):
		p.add(Trouble, "tools", advice[events.LackTools],
			"the server leaves the model's tool calls in the text: %.80q", turn.Content)
		return
	}
	forced, err := p.turn(ctx, messages, "required")
	if err == nil && len(forced.Choices[0].Message.ToolCalls) > 0 {
		p.add(Warning, "tools",
			"see whether the model was trained to use tools, and whether its chat template offers them",
			"the model called no tool by itself; made to, it did, and the server parsed it")
		return
	}
	p.add(Warning, "tools", advice[events.LackTools]+"; then see whether the model was trained to use tools",
		"the model called no tool, also when it was made to: "+
			"%.80q", first.Choices[0].Message.Content)
}

// extends looks whether a second turn's prompt begins with the tokens of the first turn.
func (p *prober) extends(ctx context.Context, messages []inference.Message, turn events.TurnSampled, prompt []int32) {
	if turn.TextOnly || prompt == nil {
		return // said by the checks of tokens
	}
	second, err := p.turn(ctx, follow(messages, turn), "")
	if err != nil {
		p.add(Trouble, "two turns", "see that the chat template takes the model's answer and the tool's result back",
			"the second turn failed: %.300s", err)
		return
	}
	_, after, err := second.Turn(1, 0, time.Now())
	if err != nil || after == nil {
		p.add(Trouble, "two turns", advice[events.LackAgreement], "the second turn has no usable tokens: %v", err)
		return
	}
	known := append(slices.Clone(prompt), turn.TokenIDs...)
	same := 0
	for same < min(len(known), len(after)) && known[same] == after[same] {
		same++
	}
	if same < len(known) {
		p.add(Warning, "two turns",
			"use a chat template that keeps reasoning and tool calls as they were sampled; until then every turn is a sample of its own, and its prompt is computed again",
			"the second turn's prompt repeats %d of the first turn's %d tokens and then differs", same, len(known))
		return
	}
	p.add(OK, "two turns", "", "the second turn's prompt extends the first turn's %d tokens", len(known))
}

// follow is a conversation with a turn, and with what answers it.
func follow(messages []inference.Message, turn events.TurnSampled) []inference.Message {
	answers := []inference.Message{{Role: "user", Content: "Go on."}}
	if len(turn.ToolCalls) > 0 {
		answers = nil
	}
	for _, c := range turn.ToolCalls {
		answers = append(answers, inference.Message{Role: "tool", ToolCallID: c.ID, Content: "README.md\nmain.go"})
	}
	return append(append(slices.Clone(messages), inference.Recorded(&turn)), answers...)
}

// processedAdvice is how servers are made to give the log-probabilities of what was sampled.
const processedAdvice = "start vLLM with --logprobs-mode processed_logprobs, or sample with temperature 1, top_p 1, top_k -1, min_p 0 and no penalties"

// distribution looks of which distribution the log-probabilities are.
func (p *prober) distribution(ctx context.Context) {
	d, err := Measure(ctx, p.ask, p.model)
	if err != nil {
		p.add(Warning, "distribution", "", "it is unknown of which distribution the log-probabilities are: %.300s", err)
		return
	}
	wrong := d.Wrong(p.sampling)
	switch {
	case len(wrong) > 0:
		p.add(Trouble, "distribution", processedAdvice,
			"the log-probabilities are those of the raw model, but the run samples with another %s: it would train on wrong ratios",
			strings.Join(wrong, ", "))
	case d.Temperature == Raw || d.Truncation == Raw:
		p.add(Warning, "distribution", processedAdvice,
			"log-probabilities: temperature %s, top_p, top_k and penalties %s. They are right for neutral sampling only",
			d.Temperature, d.Truncation)
	case d.Temperature == Unknown || d.Truncation == Unknown:
		p.add(Warning, "distribution", "compare by hand, or sample with neutral settings",
			"log-probabilities: temperature %s, top_p, top_k and penalties %s", d.Temperature, d.Truncation)
	default:
		p.add(OK, "distribution", "", "the log-probabilities are those of the distribution that was sampled")
	}
}

// label looks whether answers say which weights they were sampled with.
func (p *prober) label(first *inference.Response) {
	if version, known := first.Version(); known {
		p.add(OK, "weights", "", "answers are labelled with version %d", version)
		return
	}
	p.add(Warning, "weights",
		"label them where weights are loaded (vLLM 0.33: weight_version of /finish_weight_update; SGLang: that of /update_weights_from_disk), "+
			"so that a turn's version is known",
		"answers do not say which weights they were sampled with: the version of a turn is unknown")
}
