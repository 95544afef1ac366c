// Package books keeps the books of a run. Its folds of the run's events say how each rollout came
// about: its outcome, reward, advantage, versions, tokens, turns, and why a feed does not train on
// it. For every feed, every rollout is in exactly one of trained, stale, filtered, failed and in
// flight.
package books

import (
	"context"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// Run folds a run's events: its rollouts and groups, and what its feeds make of them. Its size
// grows with the rollouts of the run.
type Run struct {
	Name    string
	Events  int64
	LastSeq uint64
	Rollouts
	feeds map[string]*feed
}

// New makes empty books.
func New(run string) *Run {
	return &Run{Name: run, Rollouts: NewRollouts(), feeds: map[string]*feed{}}
}

// Apply folds the next event of the run's stream.
func (l *Run) Apply(e events.Event) error {
	l.Events++
	l.LastSeq = e.Seq
	if err := l.Rollouts.Apply(e); err != nil {
		return err
	}
	switch e.Type {
	case events.RunOpenedType:
		for _, f := range l.Config.Feeds {
			l.feed(f.Name).export = f.Export()
		}
	case events.GroupDroppedType:
		dropped, err := events.Data[events.GroupDropped](e)
		if err == nil {
			l.feed(dropped.Feed).dropped[e.Entity] = dropped
		}
		return err
	case events.BatchReadyType, events.BatchConsumedType, events.BatchRewoundType:
		return l.feed(e.Entity).batch(e)
	}
	return nil
}

// Read folds a run's whole stream. Other folds may read along.
func Read(ctx context.Context, log eventlog.Reader, run string, others ...func(events.Event) error) (*Run, error) {
	l := New(run)
	return l, l.Read(ctx, log, others...)
}

// Read folds the whole stream into books that are empty.
func (l *Run) Read(ctx context.Context, log eventlog.Reader, others ...func(events.Event) error) error {
	for e, err := range log.All(ctx, l.Name, 1) {
		if err == nil {
			err = l.Apply(e)
		}
		if err != nil {
			return err
		}
		for _, apply := range others {
			if err := apply(e); err != nil {
				return err
			}
		}
	}
	return nil
}
