package events

import (
	"cmp"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
)

// ToolAnswers are the answers to turns' calls, in the order of the turns. Turns without calls have none, so an answer's place is not its turn. A list and not a map: those who share
// a fold share it too, and the next answer is added behind what they have seen.
type ToolAnswers []ToolsCompleted

// Get is the answer to a turn's calls; ok is false where there is none.
func (a ToolAnswers) Get(turn int) (t ToolsCompleted, ok bool) {
	at, ok := a.find(turn)
	if ok {
		t = a[at]
	}
	return t, ok
}

// Of is the answer to a turn's calls, an empty one where there is none.
func (a ToolAnswers) Of(turn int) ToolsCompleted {
	t, _ := a.Get(turn)
	return t
}

// With are these answers and one more, in place of an earlier one to the same turn. a stays as it is.
func (a ToolAnswers) With(t ToolsCompleted) ToolAnswers {
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

// ToolTimeLeft is how long the rollout's tools may still take: half of the run's timeout in all, so that a rollout whose agent only waits ends, and is
// scored, before its deadline makes a failure of it. The turns that a fork has of its origin do not count.
func (r *Rollout) ToolTimeLeft(limits runfile.Limits) time.Duration {
	if limits.Timeout == 0 {
		return unbounded
	}
	left := time.Duration(limits.Timeout)/2 - r.toolTime
	for _, turn := range r.Turns[min(max(r.Copied, r.toolsTimed), len(r.Turns)):] {
		left -= r.Tools.Of(turn.Turn).took()
	}
	return left
}

// unbounded is the time of a rollout whose run has no timeout, as only tests make them.
const unbounded = 365 * 24 * time.Hour

// took is the time from the begin of a turn's first call to the end of its last one.
func (t ToolsCompleted) took() time.Duration {
	var begin, end time.Time
	for i, result := range t.Results {
		ended := result.StartedAt.Add(time.Duration(float64(max(0, result.DurationMS) * float64(time.Millisecond))))
		if i == 0 || result.StartedAt.Before(begin) {
			begin = result.StartedAt
		}
		if ended.After(end) {
			end = ended
		}
	}
	return max(0, end.Sub(begin))
}
