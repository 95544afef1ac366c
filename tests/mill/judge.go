package mill

import (
	"context"
	"errors"
	"fmt"

	"github.com/rondo-rl/rondo/audit"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/replay"
)

// Ended reports whether a run has been closed and nothing of it is in flight, and else says
// what it still waits for.
func Ended(ctx context.Context, log *eventlog.Log, run string) (waits string, err error) {
	closed, open, groups, steps := false, map[string]events.Type{}, map[string]bool{}, int64(0)
	for e, err := range log.All(ctx, run, 1) {
		if err != nil {
			return "", err
		}
		switch e.Type {
		case events.RunClosedType:
			closed = true
		case events.GroupOpenedType:
			groups[e.Entity] = true
		case events.GroupCompletedType:
			delete(groups, e.Entity)
		case events.RolloutStartedType, events.RolloutFinishedType:
			open[e.Entity] = e.Type
		case events.RolloutScoredType, events.RolloutFailedType:
			delete(open, e.Entity)
		case events.BatchConsumedType:
			steps++
		}
	}
	switch {
	case !closed:
		return fmt.Sprintf("it is open, %d batches are consumed, %d rollouts are in flight", steps, len(open)), nil
	case len(open) > 0 || len(groups) > 0:
		return fmt.Sprintf("it is closed, and %d rollouts and %d groups have no end", len(open), len(groups)), nil
	}
	return "", nil
}

// Judge holds a run that has ended to what Rondo promises: its audit finds nothing, its decisions
// come out the same when they are made again, and nothing is lost and nothing is there twice: each
// rollout has one outcome, and each of the steps one batch that was consumed once.
func Judge(ctx context.Context, log *eventlog.Log, run string, steps int64) error {
	var faults []error
	report, err := audit.Check(ctx, log.Reader, run)
	if err != nil {
		return err
	}
	for _, f := range report.Findings {
		faults = append(faults, fmt.Errorf("audit: %s", f))
	}
	v, err := replay.Verify(ctx, log.Reader, run, func(uint64) {})
	if err != nil {
		return err
	}
	for _, d := range v.Details {
		faults = append(faults, fmt.Errorf("decided again: %+v", d))
	}
	ids, outcomes, ready, consumed := map[string]int{}, map[string]int{}, map[int64]int{}, map[int64]int{}
	for e, err := range log.All(ctx, run, 1) {
		if err != nil {
			return err
		}
		ids[e.ID]++
		switch e.Type {
		case eventlog.Unreadable:
			faults = append(faults, fmt.Errorf("sequence %d is no event", e.Seq))
		case events.RolloutStartedType:
			outcomes[e.Entity] += 0
		case events.RolloutScoredType, events.RolloutFailedType:
			outcomes[e.Entity]++
		case events.BatchReadyType:
			batch, err := events.Data[events.BatchReady](e)
			faults = append(faults, err)
			ready[batch.Step]++
		case events.BatchConsumedType:
			batch, err := events.Data[events.BatchConsumed](e)
			faults = append(faults, err)
			consumed[batch.Step]++
		}
	}
	for id, n := range ids {
		if n != 1 {
			faults = append(faults, fmt.Errorf("event %s is there %d times", id, n))
		}
	}
	for rollout, n := range outcomes {
		if n != 1 {
			faults = append(faults, fmt.Errorf("rollout %s has %d outcomes", rollout, n))
		}
	}
	for step := range steps {
		if ready[step+1] != 1 || consumed[step+1] != 1 {
			faults = append(faults, fmt.Errorf("step %d has %d batches, and was consumed %d times", step+1,
				ready[step+1], consumed[step+1]))
		}
	}
	return errors.Join(faults...)
}
