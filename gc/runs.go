package gc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage"
)

// LeastAge is the least age at which an object may be deleted. A writer relies on objects
// that are younger than storage.RefreshAfter; that much again is left for the fact that names
// them to get onto the log.
const LeastAge = 2 * storage.RefreshAfter

// OldRun is a closed run whose stream may be deleted.
type OldRun struct {
	Run    string    `json:"run"`
	Closed time.Time `json:"closed"`
	// Kept says why its stream stays.
	Kept    string `json:"kept,omitempty"`
	Deleted bool   `json:"deleted"`
}

// StreamRetention says which streams of closed runs stay.
type StreamRetention struct {
	ClosedBefore time.Time
	Keep         int // of the runs that were closed last
	// UnreadBefore is when a run must have been closed for its stream to go although a feed has
	// batches that no trainer consumed. The zero time keeps it as long as others.
	UnreadBefore time.Time
}

// RetireRuns finds the runs that were closed long enough ago, and deletes the streams of those that
// are archived. With remove it first archives what came behind a closing.
func RetireRuns(ctx context.Context, log *eventlog.Log, keep StreamRetention, remove bool) (old []OldRun, err error) {
	closed, err := closedRuns(ctx, log.Reader)
	if err != nil {
		return nil, err
	}
	for _, r := range closed[:max(0, len(closed)-keep.Keep)] {
		if !r.Closed.Before(keep.ClosedBefore) {
			continue
		}
		if !keep.UnreadBefore.IsZero() && !r.Closed.Before(keep.UnreadBefore) {
			if err := unread(ctx, log.Reader, r.Run); err != nil {
				r.Kept = err.Error()
				old = append(old, r)
				continue
			}
		}
		last, err := log.Archive.Deletable(ctx, r.Run)
		if errors.Is(err, eventlog.ErrNotArchived) && remove {
			last, err = archiveRest(ctx, log, r.Run, err)
		}
		if err == nil && remove {
			err = log.Streams.DeleteArchived(ctx, r.Run, last)
			r.Deleted = err == nil
		}
		if ctx.Err() != nil {
			return old, ctx.Err()
		}
		if err != nil {
			r.Kept = err.Error()
		}
		old = append(old, r)
	}
	return old, nil
}

// unread names a feed of the run that has batches which no trainer consumed.
func unread(ctx context.Context, log eventlog.Reader, run string) error {
	cfg, err := log.RecordedConfig(ctx, run)
	if err != nil {
		return err
	}
	for _, feed := range cfg.Feeds {
		ready, err := lastStep(ctx, log, run, events.BatchReadyType, feed.Name,
			func(b events.BatchReady) int64 { return b.Step })
		if err != nil {
			return err
		}
		consumed, err := lastStep(ctx, log, run, events.BatchConsumedType, feed.Name,
			func(b events.BatchConsumed) int64 { return b.Step })
		if err != nil {
			return err
		}
		if consumed < ready {
			return fmt.Errorf("feed %s has batches up to step %d, and its trainer has consumed %d", feed.Name, ready,
				consumed)
		}
	}
	return nil
}

// lastStep is the step of a feed's last event of a type, 0 without one.
func lastStep[T any](ctx context.Context, log eventlog.Reader, run string, t events.Type, feed string,
	step func(T) int64) (int64, error) {
	e, err := log.LastOfType(ctx, run, t, feed)
	if errors.Is(err, eventlog.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	data, err := events.Data[T](e)
	return step(data), err
}

// archiveRest archives what a closed run at rest holds behind its archive, and gives the
// reason for which its stream must stay after that. Of a run that is not at rest that is the
// one that it has already.
func archiveRest(ctx context.Context, log *eventlog.Log, run string, reason error) (last uint64, err error) {
	wait, err := log.Archive.AtRest(ctx, run)
	if err != nil || wait > 0 {
		return 0, cmp.Or(err, reason)
	}
	if _, err := log.Appender.Seal(ctx, run, true); err != nil {
		return 0, err
	}
	return log.Archive.Deletable(ctx, run)
}

// closedRuns are the closed runs that have a stream, the one that was closed first in front.
func closedRuns(ctx context.Context, log eventlog.Reader) (closed []OldRun, err error) {
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
	slices.SortFunc(closed, func(a, b OldRun) int {
		return cmp.Or(a.Closed.Compare(b.Closed),
			cmp.Compare(a.Run, b.Run))
	})
	return closed, nil
}
