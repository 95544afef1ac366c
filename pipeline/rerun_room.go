package pipeline

import (
	"errors"
	"fmt"
	"iter"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// roomEvery is the part of its size by which the new run's stream grows
// until it is looked at again.
const roomEvery = 64

// eventOverhead is about what an event takes on a stream beside its body.
const eventOverhead = 400

// room lets go of what is archived and over before the new run's stream is full, as the archiver
// does in an open run: nobody else works on a run that is not listed yet. What it states is behind
// no decision, so that a replay that begins again decides as of the same events.
func (w *rerun) room(e events.Event) error {
	w.grown += int64(len(e.Data)) + eventOverhead
	if !w.Config.Log.Forgets() || w.grown < w.Config.Log.Bytes()/roomEvery {
		return nil
	}
	w.grown = 0
	fill, err := w.Log.Fill(w.ctx, w.To)
	if err != nil || fill < eventlog.PurgeAt {
		return err
	}
	if _, err := w.Log.Appender.Seal(w.ctx, w.To, true); err != nil {
		return err
	}
	if _, err := w.Log.Archive.PurgeEnded(w.ctx, w.To); err != nil {
		return err
	}
	fact, err := w.Log.Archive.PurgedFact(w.ctx, w.To)
	if err != nil || fact == nil {
		return err
	}
	_, _, err = w.Log.Appender.Append(w.ctx, *fact)
	return err
}

// earlier are the events that a replay before this one, which did not come to its end,
// has left on the new log.
type earlier struct {
	next func() (events.Event, error, bool)
	stop func()
}

func (w *rerun) lookBack() error {
	in, err := w.Log.Incarnation(w.ctx, w.To)
	if err != nil {
		return fmt.Errorf("look at run %s: %w", w.To, err)
	}
	if in.LastSeq > 0 {
		w.before.next, w.before.stop = iter.Pull2(w.Log.All(w.ctx, w.To, 1))
	}
	return nil
}

// there finds an event where an earlier replay has put it. The first one that differs, or is not
// there, ends that: from then on the chains decide.
func (w *rerun) there(e events.Event) (stored events.Event, found bool, err error) {
	for w.before.next != nil {
		stored, err, ok := w.before.next()
		switch {
		case ok && err == nil && stored.Type == events.LogPurgedType:
			continue
		case ok && err == nil && stored.ID == e.ID && stored.Prev == e.Prev:
			return stored, true, nil
		}
		w.forget()
		if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
			return stored, false, err
		}
	}
	return stored, false, nil
}

func (w *rerun) forget() {
	if w.before.stop != nil {
		w.before.stop()
	}
	w.before = earlier{}
}
