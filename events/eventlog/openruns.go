package eventlog

import (
	"context"
	"errors"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// OpenRuns lists the open runs whose configuration is as wanted: those that something new of the catalogue is copied into.
func (l Reader) OpenRuns(ctx context.Context, wanted func(runfile.RunConfig) bool) (open []string, err error) {
	runs, err := l.Runs(ctx)
	if err != nil {
		return nil, err
	}
	for _, run := range runs {
		is, err := l.OpenFor(ctx, run, wanted)
		if err != nil {
			return nil, err
		}
		if is {
			open = append(open, run)
		}
	}
	return open, nil
}

// OpenFor reports whether a run is open and its configuration as wanted.
func (l Reader) OpenFor(ctx context.Context, run string, wanted func(runfile.RunConfig) bool) (bool, error) {
	cfg, err := l.Config(ctx, run)
	if errors.Is(err, ErrNotFound) {
		return false, nil // being opened: its opening is consumed, too
	}
	if err != nil || !wanted(cfg) {
		return false, err
	}
	last, err := l.Last(ctx, run, events.RunOpenedType.Kind(), run)
	return err == nil && last.Type != events.RunClosedType, err
}
