package ledger

import (
	"context"
	"maps"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// Balance is the ledger of one feed, closed at a moment.
type Balance struct {
	Feed        string `json:"feed"`
	Started     int    `json:"started"`
	Trained     int    `json:"trained"`
	Stale       int    `json:"stale"`
	Filtered    int    `json:"filtered"`
	Failed      int    `json:"failed"`
	InFlight    int    `json:"in_flight"`
	Invalidated int    `json:"invalidated"` // a flag on top of the outcomes
	Steps       int    `json:"steps"`       // batches that are ready
	Consumed    int64  `json:"consumed"`    // the last step that the trainer has taken
}

// AddsUp reports whether every started rollout is in exactly one outcome.
func (b Balance) AddsUp() bool {
	return b.Started == b.Trained+b.Stale+b.Filtered+b.Failed+b.InFlight
}

// Balance closes the books of a feed.
func (l *Ledger) Balance(feedName string) Balance {
	b := Balance{Feed: feedName, Steps: len(l.feed(feedName).batches), Consumed: l.feed(feedName).consumed}
	for id, r := range l.rollouts {
		b.Started++
		if r.Invalidated {
			b.Invalidated++
		}
		switch l.Outcome(feedName, id) {
		case Trained:
			b.Trained++
		case Stale:
			b.Stale++
		case Filtered:
			b.Filtered++
		case Failed:
			b.Failed++
		case InFlight:
			b.InFlight++
		}
	}
	return b
}

// RewardCurve is the mean reward of each batch of a feed, by step.
func (l *Ledger) RewardCurve(feedName string) []float64 {
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

// Feeds lists the run's feeds: those of its configuration in their order, then what else the log speaks of. Of an evaluation
// without feeds it is NoFeed.
func (l *Ledger) Feeds() []string {
	var names []string
	for _, f := range l.Config.Feeds {
		names = append(names, f.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(l.feeds)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 && l.Config.Epochs > 0 {
		return []string{NoFeed}
	}
	return names
}

// FirstFeed is the feed that paces the run, NoFeed where there is none.
func (l *Ledger) FirstFeed() string {
	if feeds := l.Feeds(); len(feeds) > 0 {
		return feeds[0]
	}
	return NoFeed
}

// Read folds a run's whole stream. Other folds may read along.
func Read(ctx context.Context, log *eventlog.Log, run string, others ...func(events.Event) error) (*Ledger, error) {
	l := New(run)
	folds := append([]func(events.Event) error{l.Apply}, others...)
	for e, err := range log.All(ctx, run, 1) {
		if err != nil {
			return nil, err
		}
		for _, apply := range folds {
			if err := apply(e); err != nil {
				return nil, err
			}
		}
	}
	return l, nil
}

// Rollouts lists every rollout with its outcome for a feed.
func (l *Ledger) Rollouts(feedName string) map[string]Outcome {
	outcomes := map[string]Outcome{}
	for id := range l.rollouts {
		outcomes[id] = l.Outcome(feedName, id)
	}
	return outcomes
}
