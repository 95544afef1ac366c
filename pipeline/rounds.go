package pipeline

import (
	"context"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/retry"
)

// Round says what a service has to do in an open run without an input: the handler of it, nil for
// nothing, and how long to wait until it is asked again. The handler's events are appended as those
// of an input, whose message is empty.
type Round func(ctx context.Context, run string, cfg runfile.RunConfig) (handle Handler, wait time.Duration, err error)

// rounds makes the service's rounds in one run, until the run is closed or its stream is gone.
func (s *effectService) rounds(ctx context.Context, run string, cfg runfile.RunConfig) {
	_ = beginAgain.Keep(ctx, func() (done bool, err error) {
		wait, err := s.round(ctx, run, cfg)
		if err != nil {
			return ctx.Err() != nil || streamDeleted(err), err
		}
		for err == nil && retry.Sleep(ctx, wait) {
			wait, err = s.round(ctx, run, cfg)
		}
		return ctx.Err() != nil || streamDeleted(err), err
	}, func(err error, wait time.Duration) {
		s.env.Logger.Warn("round failed", "service", s.effect.Name, "run", run, "retry_in", wait, "error", err)
	})
}

// round makes one. Those of different runs come one after the other, as each takes
// memory beside the slots.
func (s *effectService) round(ctx context.Context, run string, cfg runfile.RunConfig) (wait time.Duration, err error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	handle, wait, err := s.effect.Round(ctx, run, cfg)
	if err != nil || handle == nil {
		return wait, err
	}
	e := s.effect
	e.Handle = handle
	return wait, e.Record(ctx, s.env, Message{Time: time.Now()})
}
