package pipeline

import (
	"context"
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
	ctx context.Context, log eventlog.Reader, wants func(runfile.RunConfig) bool, next func(run string) (*events.Event, error), runs ...string,
) (facts []events.Event, err error) {
	if len(runs) == 0 {
		if runs, err = log.Runs(ctx); err != nil {
			return nil, err
		}
	}
	for _, run := range runs {
		open, err := log.OpenFor(ctx, run, wants)
		if err != nil {
			return nil, err
		}
		if !open {
			continue
		}
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
