package generator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/pipeline/outage"
)

// throttledSlot is how long a slot is kept for a server that asks to wait: while all slots wait,
// nothing more is asked of it.
const throttledSlot = 10 * time.Second

// addWaits adds to a rollout's clock what the plane's outages have cost it since it went on: its
// time is not over while the query sampler waits.
func addWaits(ctx context.Context, log eventlog.Reader, r *events.Rollout) error {
	came := r.Clock.Moved
	if came.IsZero() {
		came = r.Clock.Began
	}
	for _, stage := range []string{events.StageGenerator, events.EveryStage} {
		e, err := log.Last(ctx, r.Run, events.StageWaitedType.Kind(), stage)
		for err == nil {
			var waited events.StageWaited
			if waited, err = events.Data[events.StageWaited](e); err != nil {
				return err
			}
			r.Clock.Wait(r.ID, events.StageGenerator, waited.Span())
			if e.Prev == 0 || e.Time.Before(came) {
				break
			}
			e, err = log.Event(ctx, r.Run, e.Prev)
		}
		if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
			return err
		}
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

// overAfter is how long the query sampler may take to state that a rollout is over, or that an
// outage was no time of it: longer than another process needs to take its lease.
const overAfter = 20 * time.Second

// outOfTime is what becomes of an input whose turn was not had in the rollout's time. Nobody else
// has it: it comes again until the log says that the rollout is over, and where an outage has moved
// that, its turn is asked for.
func outOfTime(ctx context.Context, m pipeline.Message, limits runfile.Limits, r *events.Rollout, cause error) error {
	if outage.KindOf(cause) != "" {
		return cause
	}
	before := r.Due(limits)
	if err := addWaits(ctx, m.Log, r); err != nil {
		return err
	}
	if r.Due(limits).After(before) {
		return pipeline.ErrCallAgain
	}
	if m.Delivered >= uint64(topology.ConsumersOf(topology.Generator)[0].MaxDeliver) {
		return nil
	}
	return pipeline.RetryAfter(fmt.Errorf("the time of rollout %s is over, and the query sampler has not said so yet",
		r.ID), overAfter)
}

// lastWord is how long before it is due a rollout gives a server up that is away: what
// is given up then says why.
const lastWord = 3 * time.Second

// patience is until when a turn waits for servers that want to be left alone, or are away.
func patience(r *events.Rollout, limits runfile.Limits, now time.Time) time.Time {
	until := now.Add(throttledSlot)
	if due := r.Due(limits); !due.IsZero() && due.Add(-lastWord).Before(until) {
		return due.Add(-lastWord)
	}
	return until
}

// hasAnswered tells servers that will come back from addresses that were never right: the run has
// a turn of them, or had one of a rollout that has its score. The log knows that after this
// process was started again, too.
func hasAnswered(ctx context.Context, log eventlog.Reader, run string) bool {
	for _, shown := range []events.Event{{Run: run, Type: events.TurnSampledType, Entity: "*", Route: ">"},
		{Run: run, Type: events.RolloutScoredType, Entity: "*"}} {
		if has, err := log.Has(ctx, run, shown.Subject()); has && err == nil {
			return true
		}
	}
	return false
}

// putOff spreads the deliveries that are left over the rollout's time: whoever throttles, or is
// away, must not use them up.
func putOff(after, left time.Duration, delivered uint64) time.Duration {
	most := uint64(topology.ConsumersOf(topology.Generator)[0].MaxDeliver)
	remaining := max(1, most-min(delivered, most))
	return max(after, left/time.Duration(remaining))
}
