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

// Retention says which archived runs are forgotten, the oldest first. A run is archived when it was
// closed and its stream was deleted.
type Retention struct {
	// ClosedBefore forgets runs that were closed before it; the zero time forgets none by age.
	ClosedBefore time.Time
	// MaxBytes forgets runs until the files of those that are left take no
	// more; 0 forgets none by size.
	MaxBytes int64
	// Keep is how many of the runs that were closed last are kept whatever the other bounds say.
	Keep int
	// Referred keeps runs that others continue or replay.
	Referred bool
}

// ForgottenRun is an archived run that retention no longer keeps.
type ForgottenRun struct {
	Run    string    `json:"run"`
	Closed time.Time `json:"closed"`
	// Bytes are the run's own files: trajectories, batches, tool answers and archive. What other
	// runs refer to of them stays.
	Bytes     int64  `json:"bytes"`
	Reason    string `json:"reason"`
	Forgotten bool   `json:"forgotten"`
}

// Forget finds the archived runs that retention does not keep, and with remove records that they
// are forgotten. Their objects are garbage from then on, which the collector deletes. A run without
// a recorded closing, and one that has a stream, is never forgotten.
func Forget(ctx context.Context, log eventlog.Appender, keep Retention, remove bool) (gone []ForgottenRun, err error) {
	runs, err := archivedRuns(ctx, log.Reader)
	if err != nil {
		return nil, err
	}
	named := map[string]bool{}
	if keep.Referred {
		if named, err = referred(ctx, log.Reader); err != nil {
			return nil, err
		}
	}
	left := int64(0)
	for _, r := range runs {
		left += r.Bytes
	}
	for _, r := range runs[:max(0, len(runs)-keep.Keep)] {
		switch {
		case named[r.Run]:
			continue
		case r.Closed.Before(keep.ClosedBefore):
			r.Reason = "closed before " + keep.ClosedBefore.UTC().Format(time.RFC3339)
		case keep.MaxBytes > 0 && left > keep.MaxBytes:
			r.Reason = "the files of archived runs take more than the bound"
		default:
			continue
		}
		left -= r.Bytes
		if remove {
			if err := log.ForgetRun(ctx, r.Run, r.Reason); err != nil {
				return gone, err
			}
			r.Forgotten = true
		}
		gone = append(gone, r)
	}
	return gone, nil
}

// archivedRuns are the closed runs of which only the archive is left, the one that
// was closed first in front.
func archivedRuns(ctx context.Context, log eventlog.Reader) (runs []ForgottenRun, err error) {
	names, err := log.AllRuns(ctx)
	if err != nil {
		return nil, err
	}
	bytes, err := ownBytes(ctx, log.Store())
	if err != nil {
		return nil, err
	}
	for _, run := range names {
		if _, err := log.Incarnation(ctx, run); !errors.Is(err, eventlog.ErrNotFound) ||
			errors.Is(err, eventlog.ErrRestoring) {
			if err != nil && !errors.Is(err, eventlog.ErrRestoring) {
				return nil, err
			}
			continue
		}
		closing, err := log.LastOfType(ctx, events.Catalogue, events.RunClosedType, run)
		if errors.Is(err, eventlog.ErrNotFound) {
			continue // its stream was lost, and may be restored
		}
		if err != nil {
			return nil, err
		}
		runs = append(runs, ForgottenRun{Run: run, Closed: closing.Time, Bytes: bytes[run]})
	}
	slices.SortFunc(runs, func(a, b ForgottenRun) int {
		return cmp.Or(a.Closed.Compare(b.Closed),
			cmp.Compare(a.Run, b.Run))
	})
	return runs, nil
}

// ownBytes are the sizes of the files of each run in the store.
func ownBytes(ctx context.Context, store storage.Store) (map[string]int64, error) {
	bytes := map[string]int64{}
	for info, err := range store.List(ctx, "runs/") {
		if err != nil {
			return nil, err
		}
		if run := runOf(info.Key); run != "" {
			bytes[run] += info.Size
		}
	}
	return bytes, nil
}
