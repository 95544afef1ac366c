package events

import (
	"cmp"
	"slices"
)

// ToolAnswers are the answers to turns' calls, in the order of the turns. Turns without calls have
// none, so an answer's place is not its turn. A list and not a map: those who share a fold share it
// too, and the next answer is added behind what they have seen.
type ToolAnswers []ToolsCompleted

// Get is the answer to a turn's calls; ok is false where there is none.
func (a ToolAnswers) Get(turn int) (t ToolsCompleted, ok bool) {
	at, ok := a.find(turn)
	if ok {
		t = a[at]
	}
	return t, ok
}

// Answer is the answer to a turn's calls, an empty one where there is none.
func (a ToolAnswers) Answer(turn int) ToolsCompleted {
	t, _ := a.Get(turn)
	return t
}

// Add are these answers and one more, in place of an earlier one to the
// same turn. a stays as it is.
func (a ToolAnswers) Add(t ToolsCompleted) ToolAnswers {
	at, found := a.find(t.Turn)
	switch {
	case at == len(a):
		return append(a, t)
	case found:
		a = slices.Clone(a)
		a[at] = t
		return a
	}
	return slices.Insert(slices.Clone(a), at, t)
}

func (a ToolAnswers) find(turn int) (at int, found bool) {
	return slices.BinarySearchFunc(a, turn, func(t ToolsCompleted, turn int) int { return cmp.Compare(t.Turn, turn) })
}
