package books

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Counts counts rollouts by their outcome for a feed.
type Counts struct {
	Started  int `json:"started"`
	Trained  int `json:"trained"`
	Stale    int `json:"stale"`
	Filtered int `json:"filtered"`
	Failed   int `json:"failed"`
	InFlight int `json:"in_flight"`
}

// Counter is the count of an outcome.
func (c *Counts) Counter(o Outcome) *int {
	switch o {
	case Trained:
		return &c.Trained
	case Stale:
		return &c.Stale
	case Filtered:
		return &c.Filtered
	case Failed:
		return &c.Failed
	}
	return &c.InFlight
}

// Add counts n started rollouts that have the outcome; n below 0 takes them out again. Of a rollout
// whose outcome changes, -1 is added to the one before, and 1 to the new one.
func (c *Counts) Add(o Outcome, n int) {
	c.Started += n
	*c.Counter(o) += n
}

// AddsUp reports whether every started rollout is in exactly one outcome.
func (c Counts) AddsUp() bool {
	return c.Started == c.Trained+c.Stale+c.Filtered+c.Failed+c.InFlight
}

// Balance is the books of one feed, closed at a moment.
type Balance struct {
	Feed string `json:"feed"`
	Counts
	Invalidated int   `json:"invalidated"` // a flag on top of the outcomes
	Steps       int   `json:"steps"`       // batches that are ready
	Consumed    int64 `json:"consumed"`    // the last step that the trainer has taken
}

// Balance closes the books of a feed.
func (l *Run) Balance(feedName string) Balance {
	b := Balance{Feed: feedName, Steps: len(l.feed(feedName).batches), Consumed: l.feed(feedName).consumed}
	for id, r := range l.rollouts {
		b.Add(l.Entry(feedName, id).Outcome, 1)
		if r.Invalidated {
			b.Invalidated++
		}
	}
	return b
}

// RewardCurve is the mean reward of each batch of a feed, by step.
func (l *Run) RewardCurve(feedName string) []float64 {
	var curve []float64
	for _, b := range l.feed(feedName).batches {
		curve = append(curve, b.RewardMean)
	}
	return curve
}

// Quarters is the mean of a curve's first and last quarter, each of at least one step.
func Quarters(curve []float64) (first, last float64) {
	if len(curve) == 0 {
		return 0, 0
	}
	n := max(1, len(curve)/4)
	return mean(curve[:n]), mean(curve[len(curve)-n:])
}

func mean(values []float64) (m float64) {
	for _, v := range values {
		m += v / float64(len(values))
	}
	return m
}

// ByCount are the names that are counted, the most frequent first.
func ByCount(counts map[string]int) []string {
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
}
