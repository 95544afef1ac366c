package track

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/retry"
)

// mostAtOnce bounds the trackers that are written at once: each is a process of Python. Others wait
// until one has all steps.
const mostAtOnce = 64

// again is how long a tracker that failed is left alone, while all runs are followed.
var again = retry.Policy{First: 5 * time.Second, Most: 5 * time.Minute}

// run writes to all trackers that a run's file names.
func (o *tracking) run(ctx context.Context, run string) error {
	cfg, err := o.plane.Log.RecordedConfig(ctx, run)
	if err != nil {
		return err
	}
	if len(cfg.Trackers) == 0 {
		return fmt.Errorf("the file of run %s names no trackers: say --to TRACKER", run)
	}
	var writing errgroup.Group
	for _, to := range cfg.Trackers {
		writing.Go(func() error { return o.write(ctx, run, to) })
	}
	return writing.Wait()
}

// all writes to the trackers of all runs whose files name some. Where it follows, it goes
// on until the context ends.
func (o *tracking) all(ctx context.Context) error {
	var writing errgroup.Group
	writing.SetLimit(mostAtOnce)
	take := func(e events.Event) error {
		if e.Type != events.RunOpenedType {
			return nil
		}
		targets, err := o.targets(ctx, e)
		for _, to := range targets {
			writing.Go(func() error { return o.keep(ctx, e.Entity, to) })
		}
		return err
	}
	var err error
	if o.once {
		for e, listed := range o.plane.Log.All(ctx, events.Catalogue, 1) {
			if err = listed; err == nil {
				err = take(e)
			}
			if err != nil {
				break
			}
		}
	} else {
		err = o.plane.Log.Follow(ctx, events.Catalogue, 1, "", take)
	}
	if err = errors.Join(err, writing.Wait()); ctx.Err() != nil {
		return nil // interrupted
	}
	return err
}

// targets are the trackers of a run whose opening the catalogue has. A run that is gone has none,
// nor has a replay: its steps are another run's.
func (o *tracking) targets(ctx context.Context, e events.Event) ([]runfile.Tracker, error) {
	opened, err := events.Data[events.RunOpened](e)
	if err != nil || opened.Replays != nil {
		return nil, err
	}
	cfg, err := o.plane.Log.RecordedConfig(ctx, e.Entity)
	if errors.Is(err, eventlog.ErrNotFound) {
		return nil, nil
	}
	return cfg.Trackers, err
}

// keep writes a run's steps. Where the command follows, a tracker that fails is tried again.
func (o *tracking) keep(ctx context.Context, run string, to runfile.Tracker) error {
	if o.once {
		return o.write(ctx, run, to)
	}
	return again.Keep(ctx, func() (bool, error) {
		err := o.write(ctx, run, to)
		if errors.Is(err, eventlog.ErrNotFound) {
			return true, nil // the run was deleted meanwhile
		}
		return err == nil, err
	}, func(err error, wait time.Duration) {
		why := cmp.Or(app.Line(err.Error(), 500), "Python has ended, as it says above")
		fmt.Fprintf(o.stderr, "run %s, %s: %s (again in %.0f s)\n", run, to.To, why, wait.Seconds())
	})
}

// shared is a writer for what several processes print.
type shared struct {
	mu sync.Mutex
	to io.Writer
}

// Write implements io.Writer.
func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to.Write(p)
}
