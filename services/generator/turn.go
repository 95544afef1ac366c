package generator

import (
	"slices"

	"github.com/rondo-rl/rondo/events"
)

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
