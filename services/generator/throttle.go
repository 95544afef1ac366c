package generator

import (
	"context"
	"errors"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runtime"
	"github.com/rondo-rl/rondo/inference"
)

// held is how long a slot is kept for a server that asks to wait: while all slots wait, nothing more is asked of it.
const held = 10 * time.Second

// leastWait is the rest before a server that asked to wait is asked again.
const leastWait = 100 * time.Millisecond

// untilDeadline ends with the rollout's time, so that no request outlives its rollout.
func untilDeadline(ctx context.Context, r *events.Rollout) (context.Context, context.CancelFunc) {
	if r.Started.Deadline.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, r.Started.Deadline)
}

// askPatiently asks again as long as the server says when, or will come back, within the time that a slot may be held.
func (s *Service) askPatiently(ctx context.Context, cfg events.RunConfig, task events.TaskSpec, r *events.Rollout) (events.TurnSampled, error) {
	until := time.Now().Add(held)
	if d := r.Started.Deadline.Add(-awayWait); !r.Started.Deadline.IsZero() && d.Before(until) {
		until = d // what is given up before the deadline says why
	}
	for {
		t, err := s.ask(ctx, cfg, task, r)
		var f *inference.Failure
		if err == nil || !errors.As(err, &f) {
			return t, err
		}
		wait := max(leastWait, f.After)
		if f.Away {
			wait = max(awayWait, f.After)
			if f.Away = s.hasAnswered(ctx, r.Run); !f.Away {
				return t, err
			}
		} else if !f.Throttled {
			return t, err
		}
		if time.Now().Add(wait).After(until) || !runtime.Sleep(ctx, wait) {
			return t, err
		}
	}
}

// awayWait is the rest before a server that is away is looked for again.
const awayWait = time.Second

// hasAnswered tells a server that will come back from an endpoint that was never right: the run has a turn of it. The log knows
// that after this process was started again, too.
func (s *Service) hasAnswered(ctx context.Context, run string) bool {
	has, err := s.log.Has(ctx, run, events.Event{Run: run, Type: events.TurnSampledType, Entity: "*", Route: ">"}.Subject())
	return has && err == nil
}

// putOff spreads the deliveries that are left over the rollout's time: whoever throttles, or is away, must not use them up.
func putOff(after, left time.Duration, delivered uint64) time.Duration {
	most := uint64(events.ConsumersOf(events.Generator)[0].MaxDeliver)
	remaining := max(1, most-min(delivered, most))
	return max(after, left/time.Duration(remaining))
}
