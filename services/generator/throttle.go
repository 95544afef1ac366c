package generator

import (
	"context"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
)

// throttledSlot is how long a slot is kept for a server that asks to wait: while all slots wait, nothing more is asked of it.
const throttledSlot = 10 * time.Second

// untilDeadline ends with the rollout's time, and with its agent's, so that no request outlives them.
func untilDeadline(ctx context.Context, r *events.Rollout, task runfile.TaskSpec) (context.Context, context.CancelFunc) {
	until := r.Started.Deadline
	if agents := agentDeadline(r, task); until.IsZero() || !agents.IsZero() && agents.Before(until) {
		until = agents
	}
	if until.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, until)
}

// lastWord is how long before its deadline a rollout gives a server up that is away: what is given up then says why.
const lastWord = 3 * time.Second

// patience is until when a turn waits for servers that want to be left alone, or are away.
func patience(r *events.Rollout, now time.Time) time.Time {
	until := now.Add(throttledSlot)
	if d := r.Started.Deadline.Add(-lastWord); !r.Started.Deadline.IsZero() && d.Before(until) {
		return d
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
