package pipeline

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/pipeline/outage"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/projection"
)

// stuckAfter is how often in a row a decider fails by a run's own fault until the run is paused.
// With the rests in between half a minute passes.
const stuckAfter = 6

// runFault is a failure that is in one run: in what is on its log, in its files, or in how a
// decider treats them. Other failures, such as a server that is away, strike every run.
type runFault struct{ error }

func (f runFault) Unwrap() error { return f.error }

// ofRun marks a failure as the run's own, unless an outage, this process's disk or memory of the
// run is to blame, or its being out of date.
func ofRun(err error) error {
	var local syscall.Errno
	if err == nil || errors.Is(err, context.Canceled) || outage.KindOf(err) != "" || projection.Corrupt(err) ||
		errors.As(err, &local) || errors.Is(err, events.ErrNewer) {
		return err
	}
	return runFault{err}
}

// unreadable marks why a run's events do not come as the run's own where a body of
// theirs is lost or another one.
func unreadable(err error) error {
	if storage.IsUnusable(err) {
		return ofRun(err)
	}
	return err
}

// unappendable marks a failed append as the run's own where the chain is what is wrong.
func unappendable(err error) error {
	if errors.Is(err, events.ErrMalformed) || errors.Is(err, events.ErrSubject) || errors.Is(err, eventlog.ErrNoLink) {
		return ofRun(err)
	}
	return err
}

// streak counts a decider's failures by faults of a run since it last decided.
type streak int

// failed takes a failure in, and pauses the run when it is stuck: the sampler must not go on to
// spend where nothing comes of it, and who looks at the run must see why. The decider goes on
// trying, so that a run which is resumed goes on, or is paused again.
func (n *streak) failed(ctx context.Context, env Env, run, decider string, err error) {
	var f runFault
	if !errors.As(err, &f) {
		return
	}
	if *n++; *n < stuckAfter {
		return
	}
	paused, err := pauseRun(ctx, env.Log.Appender, run, decider, f)
	switch {
	case err != nil:
		env.Logger.Warn("stuck run not paused", "decider", decider, "run", run, "error", err)
	case paused:
		env.Logger.Error("stuck run paused", "decider", decider, "run", run, "error", f)
	}
}

// pauseRun states that a run is paused, unless it is already, or is closed.
func pauseRun(ctx context.Context, log eventlog.Appender, run, decider string, cause error) (paused bool, err error) {
	last, err := log.Last(ctx, run, events.RunOpenedType.Kind(), run)
	if err != nil || last.Type == events.RunPausedType || last.Type == events.RunClosedType {
		return false, err
	}
	why := fmt.Sprintf("%s is stuck; see to it, then `rondo run resume %s`. It fails with: %.600s", decider, run, cause)
	e, err := events.New(run, events.RunPausedType, run, fmt.Sprintf("%s-%s-%d", events.PauseStuck, decider, last.Seq),
		events.RunPaused{Reason: why, Class: events.PauseStuck})
	if err != nil {
		return false, err
	}
	// No decision, which is made of the folded state: that is what cannot be had.
	e.Source, e.Prev = stuckSource+decider, last.Seq
	_, _, err = log.Append(ctx, e)
	var conflict *eventlog.Conflict
	if errors.As(err, &conflict) {
		return false, nil // the next failure looks again
	}
	return err == nil, err
}

// stuckSource begins the ce-source of such a pause; the decider's name follows.
const stuckSource = "runtime/"
