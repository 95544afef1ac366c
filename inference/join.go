package inference

import "slices"

// Bounds of what templates do at the end of an answer, in tokens.
const (
	// closing is how many tokens a template puts behind an answer at most: the end of the turn and
	// a line break are two, and Kimi K3's ends of words and message seven.
	closing = 8
	// emptyThoughts is how many tokens an empty block of thoughts has at most that a template adds
	// to its last messages alone: it has one to four.
	emptyThoughts = 8
	// enough is how many tokens must agree where the last one alone proves
	// nothing: it may be any word.
	enough = 3
)

// endOf is where in a rendering the messages end that another, older rendering holds alone. A
// template may write an empty block of thoughts into each answer behind the user's last words. Once
// the user has spoken again it writes none, so one block may be missing in several places. The
// older rendering may have up to rest tokens at its end that the other one lacks. ok is false where
// the renderings differ in any other way.
func endOf(old, whole []int32, rest int) (end int, ok bool) {
	same := agree(old, whole)
	if len(old)-same <= rest {
		return same, true
	}
	for n := 1; n <= min(emptyThoughts, len(old)-same); n++ {
		if end, ok := endWithoutBlock(old[same:same+n], old[same:], whole[same:], rest); ok {
			return same + end, true
		}
	}
	return 0, false
}

// endWithoutBlock is where in a rendering an older one ends, if the two differ by one block alone,
// which the older one has. It begins with the block.
func endWithoutBlock(block, old, whole []int32, rest int) (end int, ok bool) {
	for len(old) > rest {
		if len(old) <= len(block) || !slices.Equal(old[:len(block)], block) {
			return 0, false // nothing behind the block would prove that it is one
		}
		old = old[len(block):]
		same := agree(old, whole[end:])
		if same == 0 {
			return 0, false
		}
		old, end = old[same:], end+same
	}
	return end, true
}

// agree is how many tokens two lists begin with together.
func agree(a, b []int32) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// join is what a prompt adds behind a sample: the tokens of the messages since, which the rendering
// whole has behind end, with as much of what the template puts behind an answer as the sample does
// not end with itself. Samples end with a stop token, which may be the template's own (as Qwen's),
// another one, or the first token of the next message (as GLM's); a sample that was cut, which is
// what unsure says, may end with any word. ok is false where the sample's end is not found.
func join(sample, whole []int32, end int, unsure bool) (added []int32, ok bool) {
	if at, found := meets(sample, whole, end, unsure); found {
		return whole[at:], true
	}
	if unsure || len(sample) == 0 {
		return nil, false
	}
	// it stopped with a token that the template does not know
	at, found := meets(sample[:len(sample)-1], whole, end, true)
	if !found {
		return nil, false
	}
	return whole[at:], true
}

// meets is the place near the end of a message in a rendering up to which most of a sample's
// last tokens stand there.
func meets(sample, whole []int32, end int, unsure bool) (at int, found bool) {
	least := 1
	if unsure {
		least = max(1, min(enough, len(sample)))
	}
	most := 0
	for place := min(end+1, len(whole)); place >= max(0, end-closing); place-- {
		n := 0
		for n < min(len(sample), place) && sample[len(sample)-1-n] == whole[place-1-n] {
			n++
		}
		if n >= least && n > most {
			at, most = place, n
		}
	}
	return at, most > 0
}
