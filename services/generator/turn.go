package generator

import (
	"slices"

	"github.com/rondo-rl/rondo/events"
)

// delta is what the prompt adds to the tokens of the current segment. Where the prompt is not
// an exact continuation (a template that drops reasoning, a re-tokenised answer), a new
// segment begins with all of it.
func delta(r *events.Rollout, prompt []int32) (added []int32, newSegment bool) {
	ids, _, ok := segmentTokens(r)
	if summed(r) || !ok || !begins(prompt, ids) {
		return prompt, true
	}
	return prompt[len(ids):], false
}

// block is how many ids are compared at once: arrays are compared as memory, which is two to three
// times as fast as id by id.
const block = 1024

// begins reports whether a prompt begins with what is known. It looks at all that is known,
// hundreds of thousands of ids in each turn.
func begins(prompt, known []int32) bool {
	if len(prompt) < len(known) {
		return false
	}
	prompt = prompt[:len(known)]
	for len(known) >= block {
		if *(*[block]int32)(prompt) != *(*[block]int32)(known) {
			return false
		}
		prompt, known = prompt[block:], known[block:]
	}
	return slices.Equal(prompt, known)
}

// segmentCause is what of the current segment a prompt that does not continue it does not repeat;
// "" where there is no segment yet.
func segmentCause(r *events.Rollout, prompt []int32) string {
	if summed(r) {
		return events.CauseSummary
	}
	begin := len(r.Turns) - 1
	for begin >= 0 && !r.Turns[begin].NewSegment {
		begin--
	}
	if begin < 0 {
		return ""
	}
	return events.SegmentCause(r.Turns[begin:], prompt)
}
