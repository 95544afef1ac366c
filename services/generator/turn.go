package generator

import (
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
)

// turn turns an answer into the next turn of a rollout. What was sampled must be known exactly to be trained on: tokens that
// cannot be are an error, which the next try may mend.
func turn(r *events.Rollout, answer *inference.Response, started time.Time) (events.TurnSampled, error) {
	t, prompt, err := answer.Turn(len(r.Turns), r.Started.PolicyVersion, started)
	if err == nil && !t.TextOnly {
		t.PromptDelta, t.NewSegment = delta(r, prompt)
	}
	return t, err
}

// delta is what the prompt adds to the tokens of the current segment. Where the prompt is not an exact
// continuation (a template that drops reasoning, a re-tokenised answer), a new segment begins with all of it.
func delta(r *events.Rollout, prompt []int32) (added []int32, newSegment bool) {
	begin := len(r.Turns) - 1
	for begin >= 0 && !r.Turns[begin].NewSegment {
		begin--
	}
	if begin < 0 {
		return prompt, true
	}
	rest := prompt
	for _, t := range r.Turns[begin:] {
		for _, known := range [][]int32{t.PromptDelta, t.TokenIDs} {
			if t.TextOnly || len(rest) < len(known) || !slices.Equal(rest[:len(known)], known) {
				return prompt, true
			}
			rest = rest[len(known):]
		}
	}
	return rest, false
}
