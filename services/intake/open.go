package intake

import (
	"context"
	"errors"
	"time"

	"github.com/rondo-rl/rondo/advantage"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// open makes a run's stream with its opening as the first event, and lists the run in the catalogue. at is when
// the message came.
func (s *Service) open(ctx context.Context, fact events.Event, opened *events.RunOpened, at time.Time) (events.Event, error) {
	if err := admitRun(fact); err != nil {
		return fact, err
	}
	_, err := s.log.Event(ctx, fact.Run, 1)
	known := err == nil
	if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
		return fact, err
	}
	if !known {
		if err := opened.Config.Validate(); err != nil {
			return fact, refuse("run %s: %v", fact.Run, err)
		}
		if _, err := advantage.New(opened.Config.Advantage.Estimator, opened.Config.Advantage.Params); err != nil {
			return fact, refuse("run %s: %v", fact.Run, err)
		}
		if err := s.admitName(ctx, fact.Run); err != nil {
			return fact, err
		}
		if err := s.log.EnsureRun(ctx, fact.Run); err != nil {
			return fact, err
		}
	}
	stored, _, err := s.log.Append(ctx, fact) // as the first link: whoever was first has opened the run
	if err != nil {
		return fact, err
	}
	if !sameContent(fact, stored) {
		return fact, refuse("there is a run %q already, with another configuration: choose another name", fact.Run)
	}
	if err := s.openAt(ctx, fact.Run, at); err != nil {
		return fact, err
	}
	return stored, s.catalogue(ctx, stored)
}

// admitName refuses the name of a run whose stream was deleted: the catalogue, and what was trained, know it.
func (s *Service) admitName(ctx context.Context, run string) error {
	_, err := s.log.Last(ctx, events.Catalogue, events.RunOpenedType.Kind(), run)
	if errors.Is(err, eventlog.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return refuse("there was a run %q, whose log is deleted: choose another name", run)
}

// openAt refuses to open a run again that was closed before the message came.
func (s *Service) openAt(ctx context.Context, run string, at time.Time) error {
	last, err := s.log.Last(ctx, run, events.RunOpenedType.Kind(), run)
	if err == nil && last.Type == events.RunClosedType && last.Time.Before(at) {
		return refuse("run %s is closed: choose another name", run)
	}
	return err
}

// catalogue copies a run's opening or closing to where all services look for runs.
func (s *Service) catalogue(ctx context.Context, e events.Event) error {
	c := events.Event{ID: e.ID, Run: events.Catalogue, Type: e.Type, Entity: e.Run, Source: events.Intake, Data: e.Data}
	_, _, err := s.log.AppendLast(ctx, c, func(last *events.Event) error {
		if last != nil && last.Type == events.RunClosedType && e.Type == events.RunOpenedType {
			return errKnown // the opening was copied long ago
		}
		return nil
	})
	if errors.Is(err, errKnown) {
		return nil
	}
	return err
}
