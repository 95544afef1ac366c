package pipeline

import (
	"maps"
	"slices"

	"github.com/rondo-rl/rondo/events"
)

// pace is how far a feed's trainer is.
type pace struct {
	ready, consumed int64
	taken           int64 // last step that the recorded trainer took
	// owed are the batches that the recorded trainer took before they were there in the new run.
	owed int
	free bool // the recorded run has no such trainer: batches are taken at once
}

// trainerTakes: the recorded trainer took a batch. A step that it states again, after a rewind or
// with its logprob_gap, is no other batch.
func (w *rerun) trainerTakes(e events.Event) error {
	p := w.feeds[e.Entity]
	if p == nil {
		return nil // the new run has no such feed
	}
	consumed, err := events.Data[events.BatchConsumed](e)
	if err != nil || consumed.Step <= p.taken {
		return err
	}
	p.taken = consumed.Step
	p.owed++
	return w.consume(e.Entity, p)
}

// trainerSees: the new run has a batch more.
func (w *rerun) trainerSees(fact events.Event) error {
	p := w.feeds[fact.Entity]
	if fact.Type != events.BatchReadyType || p == nil {
		return nil
	}
	p.ready++
	return w.consume(fact.Entity, p)
}

func (w *rerun) consume(feed string, p *pace) error {
	for p.consumed < p.ready && (p.free || p.owed > 0) {
		p.consumed++
		p.owed = max(0, p.owed-1)
		fact, err := events.New(w.To, events.BatchConsumedType, feed, events.Ordinal(p.consumed),
			events.BatchConsumed{Step: p.consumed})
		if err != nil {
			return err
		}
		fact.Source, fact.Time = copiedSource+"trainer", w.now
		if _, err := w.append(fact); err != nil {
			return err
		}
	}
	return nil
}

// rest lets the trainers take what is left: nothing waits for one that does not come any more.
func (w *rerun) rest() error {
	for _, feed := range slices.Sorted(maps.Keys(w.feeds)) {
		w.feeds[feed].free = true
		if err := w.consume(feed, w.feeds[feed]); err != nil {
			return err
		}
	}
	return w.settle()
}
