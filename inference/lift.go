package inference

import (
	"bytes"
	"math"
	"slices"
	"strconv"
)

// Late in a long rollout nearly all of an answer are the ids of its prompt. The decoder looks at
// each byte of them several times, so they are taken out of the text before it reads the rest.

var (
	promptKey = []byte(`"prompt_token_ids"`) // a text in JSON cannot hold it: its quotes would be escaped
	// liftedID stands in the rest for the list that was taken out. No id is below 0.
	liftedID   = int32(math.MinInt32)
	liftedList = []byte("[" + strconv.Itoa(math.MinInt32) + "]")
)

// leastLifted is how long a list must be that is taken out, in bytes.
const leastLifted = 1 << 10

// lift takes the first list of a prompt's ids out of an answer; list is nil where there
// is none, or a short one.
func lift(text []byte) (rest, list []byte) {
	_, behind, found := bytes.Cut(text, promptKey)
	behind = bytes.TrimLeft(behind, " ")
	if !found || len(behind) == 0 || behind[0] != ':' {
		return text, nil
	}
	behind = bytes.TrimLeft(behind[1:], " ")
	end := bytes.IndexByte(behind, ']') + 1
	if end < leastLifted || behind[0] != '[' {
		return text, nil
	}
	return slices.Concat(text[:len(text)-len(behind)], liftedList, behind[end:]), behind[:end]
}

// putBack puts ids where they were taken out.
func (r *Response) putBack(ids []int32) {
	r.lifted = ids
	wasLifted := func(list tokenIDs) bool { return len(list) == 1 && list[0] == liftedID }
	if wasLifted(r.PromptTokenIDs) {
		r.PromptTokenIDs = ids
	}
	for i := range r.Choices {
		if wasLifted(r.Choices[i].PromptTokenIDs) {
			r.Choices[i].PromptTokenIDs = ids
		}
	}
}
