package generator

import (
	"slices"
	"sync"

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
		conv := inference.Conversation{Request: request, Known: known, Routed: fleet.Routed(r.Turns)}
		if last := r.LastTurn(); last != nil {
			conv.Sampled, conv.Unsure = len(last.TokenIDs), last.Cut() || len(request.Stop) > 0
		}
		return conv
	}
}

// sampledSoFar are the tokens of the current segment, kept beside the fold of the rollout.
type sampledSoFar struct {
	mu    sync.Mutex
	turns int  // that are in it, or before it
	whole bool // there is a segment, and each of its turns has tokens
	ids   []int32
}

// known are the tokens of the current segment, in one list; ok is false where there is no segment, or it has a turn without tokens.
func known(r *events.Rollout) (ids []int32, ok bool) {
	s := events.Note[sampledSoFar](r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(r.Turns) < s.turns {
		s = &sampledSoFar{} // who has read the rollout later was here before
	}
	for ; s.turns < len(r.Turns); s.turns++ {
		t := &r.Turns[s.turns]
		if t.NewSegment {
			s.ids, s.whole = nil, true
		}
		s.whole = s.whole && !t.TextOnly
		s.ids = append(append(s.ids, t.PromptDelta...), t.TokenIDs...)
	}
	return slices.Clip(s.ids), s.whole
}

// segment are the tokens of the current segment: what its turns were asked with and what they sampled. nil where the next turn begins a segment, as behind a summary or a turn without tokens.
func segment(r *events.Rollout) []int32 {
	ids, ok := known(r)
	if summed(r) || !ok {
		return nil
	}
	return ids
}
