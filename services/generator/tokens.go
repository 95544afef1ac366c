package generator

import (
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/fleet"
)

// byTokens has a call ask for its turn as tokens. They are those of the recorded turns, so that a generator that starts again sends the same ones.
func byTokens(call *fleet.Call, r *events.Rollout, asked func(model string, most int) inference.Request) {
	known := segment(r)
	call.Prompt = 0 // a guess: the prompt is counted
	call.Tokens = func(model string) inference.Conversation {
		request := asked(model, 0)
		conv := inference.Conversation{Request: request, Known: known}
		if last := r.LastTurn(); last != nil {
			conv.Sampled, conv.Unsure = len(last.TokenIDs), last.FinishReason == "length" || len(request.Stop) > 0
		}
		return conv
	}
}

// segment are the tokens of the current segment: what its turns were asked with and what they sampled. nil where the next turn begins a segment, as behind a summary or a turn without tokens.
func segment(r *events.Rollout) (known []int32) {
	if summed(r) {
		return nil
	}
	begin := len(r.Turns) - 1
	for begin >= 0 && !r.Turns[begin].NewSegment {
		begin--
	}
	for i := max(0, begin); i < len(r.Turns); i++ {
		t := &r.Turns[i]
		if begin < 0 || t.TextOnly {
			return nil
		}
		known = append(append(known, t.PromptDelta...), t.TokenIDs...)
	}
	return known
}
