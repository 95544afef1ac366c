package generator

import (
	"context"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
)

// begin gives a fork what it has of its origin, and makes the fact that says so, which comes before
// whatever the fork does itself. Other rollouts, and forks that have begun, need nothing.
func begin(ctx context.Context, log eventlog.Reader, limits runfile.Limits, r *events.Rollout) ([]events.Event, error) {
	from := r.Started.Origin
	if from == nil || r.Copied > 0 || r.Over() {
		return nil, nil
	}
	origin, err := log.Rollout(ctx, r.Run, from.Rollout)
	if err != nil {
		return nil, err
	}
	copied, err := origin.Fork(from.Turn, limits)
	if err != nil { // the intake admitted it, so this log is not as it was
		facts, err := fail(r, err)
		r.Failed = &events.RolloutFailed{}
		return facts, err
	}
	fact, err := r.Next(events.RolloutCopiedType, "0", copied)
	r.Begin(copied)
	return []events.Event{fact}, err
}

// contextFrom is the first turn of a fork that is context for what it sampled itself: turns of its
// origin before that are of other segments, whose tokens nothing continues.
func contextFrom(r *events.Rollout) int {
	own := r.Copied
	if own == len(r.Turns) || r.Turns[own].NewSegment {
		return own
	}
	from := own
	for from > 0 && !r.Turns[from].NewSegment {
		from--
	}
	return from
}
