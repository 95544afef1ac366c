package generator

import (
	"strings"

	"github.com/rondo-rl/rondo/events"
)

// delta is what the prompt adds to the tokens of the current segment. Where the prompt is not an exact
// continuation (a template that drops reasoning, a re-tokenised answer), a new segment begins with all of it.
func delta(r *events.Rollout, prompt []int32) (added []int32, newSegment bool) {
	ids, ok := known(r)
	if summed(r) || !ok || !begins(prompt, ids) {
		return prompt, true
	}
	return prompt[len(ids):], false
}

// begins reports whether a prompt begins with what is known. It looks at all of both, hundreds of thousands in each turn, which is faster without a branch for each.
func begins(prompt, known []int32) bool {
	if len(prompt) < len(known) {
		return false
	}
	prompt = prompt[:len(known)]
	var differ int32
	for i, id := range known {
		differ |= id ^ prompt[i]
	}
	return differ == 0
}

// thought reports whether a turn holds thoughts, which templates may leave out of later prompts.
func thought(t events.TurnSampled) bool {
	return t.Reasoning != nil || strings.Contains(t.Content, events.EndOfThoughts)
}

// opensThoughts is how many tokens open the thoughts of an answer, at the end of its prompt or in the answer itself: templates leave thoughts out from there on, or put an empty block
// in their place. A prompt that repeats more of an answer has its thoughts, and differs behind them.
const opensThoughts = 8

// segmentCause is what of the current segment a prompt that does not continue it does not repeat; "" where there is no segment yet.
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
	for _, t := range r.Turns[begin:] {
		same := repeated(t.PromptDelta, prompt)
		prompt = prompt[same:]
		if left := len(t.PromptDelta) - same; left > 0 {
			if thought(t) && left <= opensThoughts {
				return events.CauseThoughts
			}
			return events.CauseHistory
		}
		same = repeated(t.TokenIDs, prompt)
		prompt = prompt[same:]
		if same < len(t.TokenIDs) {
			if thought(t) && same <= opensThoughts {
				return events.CauseThoughts
			}
			return events.CauseDrift
		}
	}
	return events.CauseHistory // of a turn without tokens
}

// repeated is how many tokens two lists begin with in common.
func repeated(known, prompt []int32) int {
	n := 0
	for n < min(len(known), len(prompt)) && known[n] == prompt[n] {
		n++
	}
	return n
}
