package gc

import (
	"context"
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

// RetireRuns finds the closed runs whose last fact is older than a moment, and deletes the streams of those that are archived.
func RetireRuns(ctx context.Context, log *eventlog.Log, before time.Time, remove bool) (old []OldRun, err error) {
	runs, err := log.Runs(ctx)
	if err != nil {
		return nil, err
	}
	slices.Sort(runs)
	for _, run := range runs {
		state, _, err := log.RunState(ctx, run)
		if err != nil {
			return old, err
		}
		if state != "closed" {
			continue
		}
		closing, err := log.Last(ctx, run, events.RunClosedType.Kind(), run)
		if err != nil {
			return old, err
		}
		if !closing.Time.Before(before) {
			continue
		}
		r := OldRun{Run: run, Closed: closing.Time}
		if err := log.Deletable(ctx, run); ctx.Err() != nil {
			return old, ctx.Err()
		} else if err != nil {
			r.Kept = err.Error()
		} else if remove {
			if err := log.DeleteRun(ctx, run); err != nil {
				return old, err
			}
			r.Deleted = true
		}
		old = append(old, r)
	}
	return old, nil
}
