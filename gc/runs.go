package gc

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage"
)

// LeastAge is the least age at which an object may be deleted. A writer relies on objects that are younger than storage.RefreshAfter; that much again is left
// for the fact that names them to get onto the log.
const LeastAge = 2 * storage.RefreshAfter

// OldRun is a closed run whose stream may be deleted.
type OldRun struct {
	Run    string    `json:"run"`
	Closed time.Time `json:"closed"`
	// Kept says why its stream stays.
	Kept    string `json:"kept,omitempty"`
	Deleted bool   `json:"deleted"`
}

// RetireRuns finds the runs that were closed before a moment, but for those that were closed last, and deletes the streams of those that are
// archived. With remove it first archives what came behind a closing.
func RetireRuns(ctx context.Context, log *eventlog.Log, before time.Time, keep int, remove bool) (old []OldRun, err error) {
	closed, err := closedRuns(ctx, log)
	if err != nil {
		return nil, err
	}
	for _, r := range closed[:max(0, len(closed)-keep)] {
		if !r.Closed.Before(before) {
			continue
		}
		err := log.Deletable(ctx, r.Run)
		if errors.Is(err, eventlog.ErrNotArchived) && remove {
			err = archiveRest(ctx, log, r.Run, err)
		}
		if ctx.Err() != nil {
			return old, ctx.Err()
		}
		if err != nil {
			r.Kept = err.Error()
		} else if remove {
			if err := log.DeleteRun(ctx, r.Run); err != nil {
				return old, err
			}
			r.Deleted = true
		}
		old = append(old, r)
	}
	return old, nil
}

// archiveRest archives what a closed run at rest holds behind its archive, and gives the reason for which its stream must stay after that. Of a run that
// is not at rest that is the one that it has already.
func archiveRest(ctx context.Context, log *eventlog.Log, run string, reason error) error {
	wait, err := log.AtRest(ctx, run)
	if err != nil || wait > 0 {
		return cmp.Or(err, reason)
	}
	if _, err := log.Seal(ctx, run, true); err != nil {
		return err
	}
	return log.Deletable(ctx, run)
}

// closedRuns are the closed runs that have a stream, the one that was closed first in front.
func closedRuns(ctx context.Context, log *eventlog.Log) (closed []OldRun, err error) {
	runs, err := log.Runs(ctx)
	if err != nil {
		return nil, err
	}
	for _, run := range runs {
		state, _, err := log.RunState(ctx, run)
		if err != nil {
			return nil, err
		}
		if state != "closed" {
			continue
		}
		closing, err := log.Last(ctx, run, events.RunClosedType.Kind(), run)
		if err != nil {
			return nil, err
		}
		closed = append(closed, OldRun{Run: run, Closed: closing.Time})
	}
	slices.SortFunc(closed, func(a, b OldRun) int { return cmp.Or(a.Closed.Compare(b.Closed), cmp.Compare(a.Run, b.Run)) })
	return closed, nil
}
