// Package archiver seals a run's log into Arrow segments in the store: as it grows, at intervals, and whole when it is closed.
package archiver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
)

// slots is how many runs are sealed at once because of an input, beside the one of a round; each takes the memory of a segment.
const slots = 2

// Service consumes batch_ready, as the sign that a run goes on, and the catalogue's run_closed, as closed runs are served by
// nobody, and emits segment_sealed.
type Service struct {
	log    *eventlog.Log
	logger *slog.Logger
}

// Run is the service.
func Run(ctx context.Context, env pipeline.Env) error {
	s := &Service{log: env.Log, logger: env.Logger}
	return pipeline.RunEffect(ctx, env, pipeline.Effect{Name: topology.Archiver, Slots: slots, Handle: s.Handle, Recorded: s.recorded, Round: s.Round})
}

var errMoving = errors.New("the closed run still moves")

// Handle seals the next segment of the input's run. It is called until there is none.
func (s *Service) Handle(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
	run, through := m.Event.Run, uint64(0)
	if m.Event.Type == events.RunClosedType {
		run = m.Event.Entity
		wait, err := s.log.AtRest(ctx, run)
		if errors.Is(err, eventlog.ErrNotFound) {
			return nil, nil // it was deleted, after it was archived by hand
		}
		if err != nil {
			return nil, err
		}
		if wait > 0 {
			return nil, pipeline.RetryAfter(errMoving, wait)
		}
		in, err := s.log.Incarnation(ctx, run)
		if err != nil {
			return nil, fmt.Errorf("archive run %s: %w", run, err)
		}
		through = in.LastSeq
	}
	return s.next(ctx, run, through)
}

// Round seals what an open run's stream holds when its archive is older than the run's settings say. Archivers ask at different moments, and
// the one that is first is enough.
func (s *Service) Round(ctx context.Context, run string, cfg runfile.RunConfig) (pipeline.Handler, time.Duration, error) {
	every := cfg.Log.Every()
	early := every / 10
	archived, err := s.log.Archived(ctx, run)
	if err != nil {
		return nil, 0, fmt.Errorf("archive run %s: %w", run, err)
	}
	if wait := time.Until(archived.At.Add(every - early)); wait > 0 {
		return nil, min(wait, every) + rand.N(early), nil
	}
	if archived.Last == archived.Through {
		return nil, every - early, nil
	}
	return func(ctx context.Context, _ pipeline.Message) ([]events.Event, error) {
		return s.next(ctx, run, archived.Last)
	}, every - early, nil
}

// next makes a run's next segment, and asks for another call.
func (s *Service) next(ctx context.Context, run string, through uint64) ([]events.Event, error) {
	fact, err := s.log.NextSegment(ctx, run, through)
	if err != nil {
		return nil, fmt.Errorf("archive run %s: %w", run, err)
	}
	if fact == nil {
		return nil, nil
	}
	return []events.Event{*fact}, pipeline.ErrCallAgain
}

// recorded logs segments.
func (s *Service) recorded(_ context.Context, _ pipeline.Message, facts []events.Event) error {
	segment, err := events.Data[events.SegmentSealed](facts[0])
	if err == nil {
		s.logger.Info("log segment sealed", "run", facts[0].Entity, "first", segment.First, "last", segment.Last, "bytes", segment.Segment.Size)
	}
	return err
}
