package inference

import (
	"errors"
	"fmt"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage/tokencheck"
)

// Turn is the answer as the turn with a number, sampled with the version `otherwise` unless the
// server says with which one. Where the turn's prompt stands in its rollout is the caller's to say:
// the prompt's tokens come beside it, nil for a turn that is text only. With an ErrTokens the turn
// is whole but for its tokens.
func (r *Response) Turn(number int, otherwise int64, started time.Time) (t events.TurnSampled,
	prompt []int32, err error) {
	if len(r.Choices) != 1 {
		return t, nil, fmt.Errorf("%d choices instead of 1", len(r.Choices))
	}
	choice := r.Choices[0]
	switch {
	case choice.gaveUp():
		return t, nil, fmt.Errorf("the server ended the turn with %.64q", string(choice.FinishReason))
	case len(choice.Message.ToolCalls) > MaxToolCalls:
		return t, nil, fmt.Errorf("%d tool calls in one turn, at most %d are allowed", len(choice.Message.ToolCalls),
			MaxToolCalls)
	}
	t = events.TurnSampled{
		Turn:         number,
		PromptTokens: int(r.Usage.PromptTokens), CompletionTokens: int(r.Usage.CompletionTokens),
		StartedAt: started.UTC(), LatencyMS: float64(r.took) / float64(time.Millisecond),
		Content:   choice.Message.Content,
		ToolCalls: toolCalls(number, choice.Message.ToolCalls),
	}
	if r.parts > 1 {
		t.Parts = r.parts
	}
	if t.FinishReason, t.FinishWord = choice.ended(); t.Cut() {
		t.ToolCalls = nil // what was cut may be half of one: it is not run
	}
	if t.Reasoning, err = choice.Message.recorded(); err != nil {
		return t, nil, err
	}
	t.Lacks = r.lacks()
	prompt, ids, logprobs, err := r.tokens()
	switch {
	case errors.Is(err, tokencheck.ErrNone):
		t.Lacks = append(t.Lacks, events.LackLogprobs)
	case err != nil:
		t.Lacks = append(t.Lacks, events.LackAgreement)
	}
	if err != nil || prompt == nil {
		t.TextOnly = true
		t.Estimate(r.asked)
		r.readVersions(&t, -1, otherwise)
		return t, nil, err
	}
	r.readVersions(&t, len(ids), otherwise)
	t.TokenIDs, t.Logprobs = ids, logprobs
	t.PromptTokens, t.CompletionTokens = len(prompt), len(ids)
	return t, prompt, nil
}

// toolCalls takes a turn's calls over as the model wrote them. Results are matched by id, so each
// call gets one of its own where the server gave none.
func toolCalls(turn int, asked []ToolCall) []events.ToolCall {
	var calls []events.ToolCall
	taken := map[string]bool{"": true}
	for i, c := range asked {
		id := c.ID
		for n := i; taken[id]; n++ {
			id = fmt.Sprintf("call_%d_%d", turn, n)
		}
		taken[id] = true
		calls = append(calls, events.ToolCall{ID: id, Name: c.Function.Name, Arguments: string(c.Function.Arguments)})
	}
	return calls
}
