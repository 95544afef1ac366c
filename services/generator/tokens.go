package generator

import (
	"context"
	"slices"
	"sync"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/fleet"
)

// byTokens has a call ask for its turn as tokens. They are those of the recorded turns,
// so that a generator that starts again sends the same ones. piece records what is
// sampled of it, and may be nil.
func byTokens(call *fleet.Call, r *events.Rollout, asked func(model string, most int) inference.Request,
	piece func(context.Context, events.PieceSampled) error) {
	known, samples := segment(r)
	call.Prompt = 0 // a guess: the prompt is counted
	call.Tokens = func(model string) inference.Conversation {
		conv := inference.Conversation{Request: asked(model, 0), Known: known, Routed: fleet.Routed(r.Turns),
			Begun: r.UnderWay, Piece: piece}
		conv.Samples = repeated(samples, conv.Request.Messages)
		return conv
	}
}

// repeated are samples with the messages that repeat them: the last answers of a conversation, of
// which a model alone gives any.
func repeated(samples []inference.Sampled, messages []inference.Message) []inference.Sampled {
	samples = slices.Clone(samples)
	at := len(messages)
	for i := range slices.Backward(samples) {
		for at--; at >= 0 && messages[at].Role != "assistant"; at-- {
		}
		samples[i].Message = at
	}
	return samples
}

// sampledSoFar are the tokens of the current segment, kept beside the fold of the rollout.
type sampledSoFar struct {
	mu      sync.Mutex
	turns   int  // that are in it, or before it
	whole   bool // there is a segment, and each of its turns has tokens
	ids     []int32
	samples []inference.Sampled
}

// segmentTokens are the tokens of the current segment, in one list, and its samples; ok is false
// where there is no segment, or it has a turn without tokens.
func segmentTokens(r *events.Rollout) (ids []int32, samples []inference.Sampled, ok bool) {
	s := events.Note[sampledSoFar](r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(r.Turns) < s.turns {
		s = &sampledSoFar{} // who has read the rollout later was here before
	}
	for ; s.turns < len(r.Turns); s.turns++ {
		t := &r.Turns[s.turns]
		if t.NewSegment {
			s.ids, s.samples, s.whole = nil, nil, true
		}
		s.samples = append(s.samples, inference.SampledOf(t, len(s.ids)))
		s.whole = s.whole && !t.TextOnly
		s.ids = append(append(s.ids, t.PromptDelta...), t.TokenIDs...)
	}
	return slices.Clip(s.ids), slices.Clip(s.samples), s.whole
}

// segment are the tokens of the current segment: what its turns were asked with and what they
// sampled. nil where the next turn begins a segment, as behind a summary or a turn without tokens.
func segment(r *events.Rollout) (ids []int32, samples []inference.Sampled) {
	ids, samples, ok := segmentTokens(r)
	if summed(r) || !ok {
		return nil, nil
	}
	return ids, samples
}
