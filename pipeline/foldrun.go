package pipeline

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage/projection"
)

// FoldRun folds a run's events up to a sequence, 0 for all that are there, into deciders, and
// hands their states to use, in the deciders' order. It reads the log, or the archive, and nothing
// local; the states are on disk.
func FoldRun(ctx context.Context, log eventlog.Reader, run string, until uint64, deciders []Decider,
	use func(last uint64, states []projection.View) error) (err error) {
	dir, err := os.MkdirTemp("", "rondo-fold-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	folds := make([]*verifier, 0, len(deciders))
	defer func() {
		for _, f := range folds {
			f.db.Close()
		}
	}()
	states := make([]projection.View, len(deciders))
	for i, d := range deciders {
		db, err := projection.Open(filepath.Join(dir, fmt.Sprint(i)), projection.Identity{})
		if err != nil {
			return err
		}
		folds, states[i] = append(folds, &verifier{Decider: d, db: db}), db
	}
	last, waiting := uint64(0), make([]events.Event, 0, batchEvents)
	fold := func() error {
		for _, f := range folds {
			if err := f.apply(waiting); err != nil {
				return err
			}
		}
		waiting = waiting[:0]
		return nil
	}
	for e, err := range log.All(ctx, run, 1) {
		if err != nil {
			return err
		}
		if until > 0 && e.Seq > until {
			break
		}
		if last, waiting = e.Seq, append(waiting, e); len(waiting) == batchEvents {
			if err := fold(); err != nil {
				return err
			}
		}
	}
	if len(waiting) > 0 {
		if err := fold(); err != nil {
			return err
		}
	}
	if last == 0 || until > 0 && last != until {
		return fmt.Errorf("run %s ends at event %d, before event %d", run, last, until)
	}
	return use(last, states)
}
