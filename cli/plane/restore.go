package plane

import (
	"context"
	"errors"
	"fmt"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/recovery"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
)

// Segments lists a run's segments by the catalogue, or by the store where the catalogue does not
// know them; none are an error.
func Segments(ctx context.Context, log *eventlog.Log, run string) ([]events.SegmentSealed, error) {
	if !events.ValidRun(run) {
		return nil, fmt.Errorf("there is no run %q: `rondo run list` lists the runs", run)
	}
	sealed, err := log.Segments(ctx, run)
	if err == nil && len(sealed) == 0 {
		sealed, err = recovery.Stored(ctx, log.Store(), run)
	}
	if err == nil && len(sealed) == 0 {
		err = fmt.Errorf("nothing of it is archived: `rondo run list` lists the runs, and `rondo archive seal %s` archives this one if it is there", run)
	}
	if err != nil {
		return nil, fmt.Errorf("archive of run %s: %w", run, err)
	}
	return sealed, nil
}

// AwaitNoDecider returns when nobody decides in a run. Nobody else works on a plane whose
// directory this process holds.
func (p *Plane) AwaitNoDecider(ctx context.Context, run string) error {
	if p.server != nil {
		return nil
	}
	return pipeline.AwaitNoDecider(ctx, p.Log, run)
}

// ListStored lists the version of a run's policy that the store has. The archive ends before it
// where it was published behind the last segment.
func ListStored(ctx context.Context, log *eventlog.Log, run string) error {
	cfg, err := log.Config(ctx, run)
	if err != nil {
		return nil // a log that does not begin with its opening has no policy
	}
	version, manifest, err := weights.Current(ctx, log.Store(), cfg.Policy)
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	stored, _, err := log.Published(ctx, run, cfg.Policy) // whose batches it was trained on: at least these
	if err != nil {
		return err
	}
	stored.Policy, stored.Version, stored.Manifest = cfg.Policy, version, manifest
	return recovery.ListWeights(ctx, log.Appender, stored)
}
