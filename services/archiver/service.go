// Package archiver seals a run's log into Arrow segments in the store: as it grows, and whole when it is closed.
package archiver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runtime"
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
func Run(ctx context.Context, env runtime.Env) error {
	s := &Service{log: env.Log, logger: env.Logger}
	return runtime.RunEffect(ctx, env, runtime.Effect{Name: events.Archiver, Slots: slots, Handle: s.Handle})
}

var errMoving = errors.New("the closed run still moves")

// Handle seals the input's run.
func (s *Service) Handle(ctx context.Context, m runtime.Message) ([]events.Event, error) {
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
			return nil, runtime.RetryAfter(errMoving, wait)
		}
	}
	made, err := s.log.Seal(ctx, run, closed)
	for _, segment := range made {
		s.logger.Info("sealed a part of a run's log", "run", run, "first", segment.First, "last", segment.Last, "bytes", segment.Segment.Size)
	}
	if err != nil {
		return nil, fmt.Errorf("archive run %s: %w", run, err)
	}
	return nil, nil
}
