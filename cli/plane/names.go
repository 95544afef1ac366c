package plane

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
)

// MustRun says clearly that there is no run of a name.
func (p *Plane) MustRun(ctx context.Context, run string) error {
	err := error(nil)
	known := run == events.Catalogue || events.ValidRun(run)
	if known {
		_, err = p.Log.Incarnation(ctx, run)
	}
	if errors.Is(err, eventlog.ErrNotFound) {
		_, err = p.Log.RecordedConfig(ctx, run) // of its archive
	}
	if known && errors.Is(err, eventlog.ErrNotFound) {
		if state, reason, unknown := p.Log.RunState(ctx, run); unknown == nil && state == eventlog.StateLost {
			return fmt.Errorf("run %s is lost: %s", run, reason)
		}
	}
	if !known || errors.Is(err, eventlog.ErrNotFound) {
		return fmt.Errorf("there is no run %q: `rondo run list` lists the runs", run)
	}
	return err
}

// MustFeed says clearly that a run has no feed of a name.
func (p *Plane) MustFeed(ctx context.Context, run, feed string) error {
	cfg, err := p.Log.RecordedConfig(ctx, run)
	if err != nil {
		return err
	}
	var names []string
	for _, f := range cfg.Feeds {
		if f.Name == feed {
			return nil
		}
		names = append(names, f.Name)
	}
	return fmt.Errorf("run %s has no feed %q: it has %s", run, feed, strings.Join(names, ", "))
}

// MustPolicy says clearly that nobody knows a policy: nothing was published for it, and no run
// samples it, so nothing will be.
func (p *Plane) MustPolicy(ctx context.Context, policy string) error {
	_, _, err := weights.Current(ctx, p.Store, policy)
	if !errors.Is(err, storage.ErrNotFound) {
		return err
	}
	runs, err := p.Log.Runs(ctx)
	if err != nil {
		return err
	}
	for _, run := range runs {
		cfg, err := p.Log.Config(ctx, run)
		if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
			return err
		}
		if err == nil && cfg.Policy == policy {
			return nil
		}
	}
	return fmt.Errorf("nothing was published for policy %s, and no run samples it: `rondo weights list` names the policies that have weights, `rondo run list` those of runs", policy)
}
