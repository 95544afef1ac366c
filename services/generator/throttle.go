package generator

import (
	"context"
	"errors"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
)

// throttledSlot is how long a slot is kept for a server that asks to wait: while all slots wait, nothing more is asked of it.
const throttledSlot = 10 * time.Second

// addWaits adds to a rollout's clock what the plane's outages have cost it: its time is not over while the query sampler waits.
func (s *Service) addWaits(ctx context.Context, r *events.Rollout) error {
	for _, stage := range []string{events.StageGenerator, events.EveryStage} {
		e, err := s.log.Last(ctx, r.Run, events.StageWaitedType.Kind(), stage)
		if errors.Is(err, eventlog.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		waited, err := events.Data[events.StageWaited](e)
		if err != nil {
			return err
		}
		r.Clock.Wait(r.ID, events.StageGenerator, waited.Until)
	}
	return nil
}

// untilDue ends when the plane gives the rollout up, so that no request outlives it.
func untilDue(ctx context.Context, r *events.Rollout, limits runfile.Limits) (context.Context, context.CancelFunc) {
	if due := r.Due(limits); !due.IsZero() {
		return context.WithDeadline(ctx, due)
	}
	return context.WithCancel(ctx)
}

// lastWord is how long before it is due a rollout gives a server up that is away: what is given up then says why.
const lastWord = 3 * time.Second

// patience is until when a turn waits for servers that want to be left alone, or are away.
func patience(r *events.Rollout, limits runfile.Limits, now time.Time) time.Time {
	until := now.Add(throttledSlot)
	if due := r.Due(limits); !due.IsZero() && due.Add(-lastWord).Before(until) {
		return due.Add(-lastWord)
	}
	return until
}

// hasAnswered tells servers that will come back from addresses that were never right: the run has a turn of them, or had one of a rollout
// that has its score. The log knows that after this process was started again, too.
func (s *Service) hasAnswered(ctx context.Context, run string) bool {
	for _, shown := range []events.Event{{Run: run, Type: events.TurnSampledType, Entity: "*", Route: ">"}, {Run: run, Type: events.RolloutScoredType, Entity: "*"}} {
		if has, err := s.log.Has(ctx, run, shown.Subject()); has && err == nil {
			return true
		}
	}
	return false
}

// putOff spreads the deliveries that are left over the rollout's time: whoever throttles, or is away, must not use them up.
func putOff(after, left time.Duration, delivered uint64) time.Duration {
	most := uint64(topology.ConsumersOf(topology.Generator)[0].MaxDeliver)
	remaining := max(1, most-min(delivered, most))
	return max(after, left/time.Duration(remaining))
}
