package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
)

// Inform gives the copies of a fact of the catalogue for open runs whose configurations want it:
// for those that are named, or for all. next makes the copy for a run, and is nil where the run has
// the fact or a later one. A run that is opened, closed or deleted meanwhile is left out: its
// opening is consumed, too, and whoever does that looks into the catalogue.
func Inform(
	ctx context.Context, log eventlog.Reader, wants func(runfile.RunConfig) bool,
	next func(run string) (*events.Event, error), runs ...string,
) (facts []events.Event, err error) {
	open, err := OpenRuns(ctx, log, wants, runs...)
	if err != nil {
		return nil, err
	}
	for _, run := range open {
		fact, err := next(run)
		if err != nil {
			return nil, fmt.Errorf("inform run %s: %w", run, err)
		}
		if fact != nil {
			facts = append(facts, *fact)
		}
	}
	return facts, nil
}

// OpenRuns lists the open runs whose configurations are as wanted, of those that are named,
// or of all. A caller that names a run knows that it was opened: OpenRuns waits until the
// leader has the opening, too.
func OpenRuns(ctx context.Context, log eventlog.Reader, wants func(runfile.RunConfig) bool,
	runs ...string) (open []string, err error) {
	named := len(runs) > 0
	if !named {
		if runs, err = log.Runs(ctx); err != nil {
			return nil, err
		}
	}
	for _, run := range runs {
		at := log
		if named {
			at = log.At(run, 1)
		}
		cfg, err := at.Config(ctx, run)
		if errors.Is(err, eventlog.ErrNotFound) {
			continue // it is being opened, or is deleted
		}
		if err != nil {
			return nil, err
		}
		if !wants(cfg) {
			continue
		}
		last, err := at.Last(ctx, run, events.RunOpenedType.Kind(), run)
		if errors.Is(err, eventlog.ErrNotFound) {
			continue // its configuration was read before
		}
		if err != nil {
			return nil, err
		}
		if last.Type != events.RunClosedType {
			open = append(open, run)
		}
	}
	return open, nil
}
