package gc

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/rondo-rl/rondo/agents"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/recovery"
	"github.com/rondo-rl/rondo/index/segment"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
)

// mark reads everything that refers to objects.
func (c *Collector) mark(ctx context.Context) error {
	if err := c.checkAbandoned(ctx); err != nil {
		return err
	}
	for _, run := range c.Abandoned {
		_, err := c.Log.Reach(ctx, run, 1, func(string) error { return nil })
		if err == nil {
			return fmt.Errorf("--abandon %s: its history is whole", run)
		}
		if !eventlog.Lost(err) {
			return fmt.Errorf("--abandon %s: whether its history is lost cannot be told now: %w", run, err)
		}
	}
	recorded, err := c.Log.Forgotten(ctx)
	if err != nil {
		return fmt.Errorf("the runs cannot be listed, so nothing is deleted: %w", err)
	}
	c.forgotten = map[string]bool{}
	for _, run := range append(recorded, c.Forgotten...) {
		c.forgotten[run] = true
	}
	if err := c.markHistories(ctx); err != nil {
		return err
	}
	if err := c.markStored(ctx); err != nil {
		return err
	}
	if err := c.markWeights(ctx); err != nil {
		return err
	}
	if err := agents.Reach(ctx, c.Store, c.marks.reach); err != nil {
		return fmt.Errorf("nothing is deleted: %w", err)
	}
	if err := segment.Reach(ctx, c.Store, time.Now(), c.marks.reach); err != nil {
		return fmt.Errorf("nothing is deleted: %w", err)
	}
	return nil
}

// checkAbandoned refuses names of runs of which neither the catalogue nor the store has anything.
func (c *Collector) checkAbandoned(ctx context.Context) error {
	if len(c.Abandoned) == 0 {
		return nil
	}
	known, err := c.Log.AllRuns(ctx, events.RunOpenedType)
	if err != nil {
		return fmt.Errorf("the runs cannot be listed, so nothing is deleted: %w", err)
	}
	for _, run := range c.Abandoned {
		there := slices.Contains(known, run)
		for _, err := range c.Store.List(ctx, "runs/"+run+"/") {
			if err != nil {
				return err
			}
			there = true
			break
		}
		if !there {
			return fmt.Errorf("--abandon %s: neither the log nor the store has anything of such a run: `rondo run list` lists the runs", run)
		}
	}
	return nil
}

// markHistories reads what is new in the catalogue, all runs and submissions
// since it was called last.
func (c *Collector) markHistories(ctx context.Context) error {
	runs, err := c.Log.AllRuns(ctx, events.RunOpenedType) // also those that were deleted
	if err != nil {
		return fmt.Errorf("the runs cannot be listed, so nothing is deleted: %w", err)
	}
	// The catalogue comes last: it names the segments of runs that were archived and
	// deleted in the meantime.
	for _, run := range append(runs, events.Catalogue) {
		if slices.Contains(c.Abandoned, run) {
			continue
		}
		c.show("reading run %s", run)
		in, err := c.Log.Incarnation(ctx, run)
		if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
			return unreadable(run, err)
		}
		if err != nil && c.forgotten[run] {
			continue
		}
		before := c.read[run]
		if !before.created.Equal(in.Created) {
			before.last = 0 // its stream was made again, or deleted
		}
		reach := c.marks.reach
		if run == events.Catalogue {
			reach = c.reachUnforgotten
		}
		last, err := c.Log.Reach(ctx, run, before.last+1, reach)
		if err != nil {
			return unreadable(run, err)
		}
		c.read[run] = position{in.Created, last}
	}
	return c.Log.ReachSubmissions(ctx, c.marks.reach)
}

// reachUnforgotten marks what the catalogue refers to, but for the archives of forgotten runs.
func (c *Collector) reachUnforgotten(key string) error {
	if c.forgotten[runOf(key)] {
		return nil
	}
	return c.marks.reach(key)
}

func unreadable(run string, err error) error {
	return fmt.Errorf("the history of run %s cannot be read whole, so nobody can say what it needs, and nothing is deleted "+
		"(rondo archive verify %s shows details; when it is lost for good: --abandon %s): %w", run, run, run, err)
}

// markStored reads the archives of runs that lie in the store, but that the log knows nothing of:
// the catalogue was lost, or the store belongs to another server, too.
func (c *Collector) markStored(ctx context.Context) error {
	last := ""
	for info, err := range c.Store.List(ctx, "runs/") {
		if err != nil {
			return err
		}
		_, run := kindOf(info.Key)
		if run == "" || run == last || slices.Contains(c.Abandoned, run) || c.forgotten[run] {
			continue
		}
		last = run
		if _, known := c.read[run]; known {
			continue
		}
		sealed, err := recovery.Stored(ctx, c.Store, run)
		if err == nil && len(sealed) == 0 {
			err = errors.New("there are objects of it in the store, but neither a stream nor an archive; is the store that of another server?")
		}
		if err == nil {
			_, err = c.Log.ReachSegments(ctx, run, sealed, 1, c.marks.reach)
		}
		if err != nil {
			return unreadable(run, err)
		}
	}
	return nil
}

// manifestPath is how weights.ManifestKey writes it.
var manifestPath = regexp.MustCompile(`^weights/([^/]+)/v(\d+)/manifest\.json$`)

// collectedPath is how weights.CollectedKey writes it.
var collectedPath = regexp.MustCompile(`^weights/[^/]+/v\d+/collected\.json$`)

// markWeights reads the manifests of all published weights, which are kept, as are the pointers. A
// version's delta lives as long as its files.
func (c *Collector) markWeights(ctx context.Context) error {
	for info, err := range c.Store.List(ctx, "weights/") {
		if err != nil {
			return err
		}
		found := manifestPath.FindStringSubmatch(info.Key)
		if found == nil {
			continue
		}
		version, err := strconv.ParseInt(found[2], 10, 64)
		if err != nil {
			return fmt.Errorf("%s: %w", info.Key, err)
		}
		m, err := weights.FetchManifest(ctx, c.Store, found[1], version)
		if errors.Is(err, weights.ErrCollected) {
			continue
		}
		if err != nil {
			return fmt.Errorf("nothing is deleted: %w", err)
		}
		for _, file := range m.Files {
			if err := c.marks.reach(file.Key); err != nil {
				return err
			}
		}
		if err := c.markDelta(ctx, found[1], version); err != nil {
			return err
		}
	}
	return nil
}

// markDelta marks a version's delta. One that nobody can read is garbage.
func (c *Collector) markDelta(ctx context.Context, policy string, version int64) error {
	d, err := weights.FetchDelta(ctx, c.Store, policy, version)
	if storage.IsUnusable(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("nothing is deleted: %w", err)
	}
	return errors.Join(c.marks.reach(weights.DeltaKey(policy, version)), c.marks.reach(d.Key))
}
