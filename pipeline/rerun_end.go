package pipeline

import (
	"fmt"
	"maps"
	"slices"

	"github.com/rondo-rl/rondo/events"
)

// end closes the new run if the recorded one was still open, and lists it in the catalogue.
func (w *rerun) end() error {
	if w.seq == 0 {
		return fmt.Errorf("run %s has no events", w.From)
	}
	if err := w.rest(); err != nil {
		return err
	}
	if !w.closed {
		if err := w.cut(); err != nil {
			return err
		}
	}
	for _, t := range []events.Type{events.RunOpenedType, events.RunClosedType} {
		e, err := w.Log.LastOfType(w.ctx, w.To, t, w.To)
		if err == nil {
			err = w.Log.Appender.ListRun(w.ctx, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cut ends what the recorded run had under way, so that nobody goes on with it.
func (w *rerun) cut() error {
	const reason = "the replay ends here"
	state := func(t events.Type, entity string, data any) error {
		fact, err := events.New(w.To, t, entity, "0", data)
		if err != nil {
			return err
		}
		fact.Source, fact.Time = copiedSource+"end", w.now
		_, err = w.append(fact)
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(w.flying)) {
		if err := state(events.RolloutFailedType, id, events.RolloutFailed{Stage: events.StageSampler,
			Class: events.ClassCancelled, Message: reason}); err != nil {
			return err
		}
	}
	if err := w.settle(); err != nil {
		return err
	}
	if err := state(events.RunClosedType, w.To, events.RunClosed{Reason: reason}); err != nil {
		return err
	}
	return w.settle()
}
