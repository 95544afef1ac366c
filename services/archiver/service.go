// Package archiver seals a run's log into Arrow segments in the store: as it grows, and whole when it is closed.
package archiver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
)

// slots is how many runs are sealed at once; each takes the memory of a segment.
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
	return pipeline.RunEffect(ctx, env, pipeline.Effect{Name: topology.Archiver, Slots: slots, Handle: s.Handle, Recorded: s.recorded})
}

var errMoving = errors.New("the closed run still moves")

// Handle seals the next segment of the input's run. It is called until there is none.
func (s *Service) Handle(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
	run, closed := m.Event.Run, m.Event.Type == events.RunClosedType
	if closed {
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
	}
	fact, err := s.log.NextSegment(ctx, run, closed)
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
