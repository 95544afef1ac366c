// Package gc finds and deletes the objects of a store to which nothing refers, and the streams of
// old runs that are archived.
package gc

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/rondo-rl/rondo/agents"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/index/segment"
	"github.com/rondo-rl/rondo/storage"
)

// Collector finds the objects of a store that nothing reaches.
//
// It lists what is unreachable only after it has read every history, and looks at the histories'
// new events and at the object's age again right before it deletes. What a writer has uploaded, or
// relied upon, shortly before is young: storage.PutBlob sees to that.
type Collector struct {
	Log   eventlog.Archive
	Store storage.Store
	// Cutoff is the moment before which an object must have been written to be deleted.
	Cutoff time.Time
	// Abandoned are runs whose history is lost, and what only they reached with it.
	Abandoned []string
	// Forgotten are runs that a dry run takes for forgotten, beside those that are.
	Forgotten []string
	// Found receives each object that may be deleted. It may be nil.
	Found func(Candidate)
	// Progress receives how far the work is, in the form of fmt.Sprintf. It may be nil.
	Progress func(format string, args ...any)

	// Unfinished is how many uploads Run has removed that their writers never finished. NotSearched
	// is why it has not found all of them, as where the server does not let it look.
	Unfinished  int
	NotSearched error

	marks     *marks
	forgotten map[string]bool
	// read is how far each run was read, and in which incarnation of its
	// stream (none: in its archive).
	read  map[string]position
	kinds map[string]*KindReport
}

type position struct {
	created time.Time
	last    uint64
}

// KindReport counts the objects of one kind.
type KindReport struct {
	Kind        string `json:"kind"`
	Objects     int64  `json:"objects"`
	Bytes       int64  `json:"bytes"`
	Unreachable int64  `json:"unreachable"` // and old enough to be deleted
	Garbage     int64  `json:"unreachable_bytes"`
	Young       int64  `json:"young"` // unreachable, but too young
	Deleted     int64  `json:"deleted"`
	Freed       int64  `json:"deleted_bytes"`
}

// Run marks what is reachable and finds the rest; with remove it deletes that. The reports are one
// for each kind of object.
func (c *Collector) Run(ctx context.Context, remove bool) (kinds []KindReport, err error) {
	if c.marks, err = newMarks(); err != nil {
		return nil, err
	}
	defer c.marks.Close()
	if err := c.collect(ctx, remove); err != nil {
		return nil, err
	}
	for _, kind := range objectKinds {
		kinds = append(kinds, *c.kinds[kind])
	}
	return kinds, nil
}

func (c *Collector) show(format string, args ...any) {
	if c.Progress != nil {
		c.Progress(format, args...)
	}
}

func (c *Collector) collect(ctx context.Context, remove bool) error {
	c.read, c.kinds = map[string]position{}, map[string]*KindReport{}
	for _, kind := range objectKinds {
		c.kinds[kind] = &KindReport{Kind: kind}
	}
	if err := c.mark(ctx); err != nil {
		return err
	}
	if err := c.list(ctx); err != nil {
		return err
	}
	for s, err := range c.marks.suspects() {
		if err != nil {
			return err
		}
		if c.Found != nil {
			c.Found(s)
		}
	}
	if !remove {
		return nil
	}
	if err := c.sweep(ctx); err != nil {
		return err
	}
	c.Unfinished, c.NotSearched = c.Store.RemoveUnfinished(ctx, c.Cutoff)
	return ctx.Err()
}

// keeps are objects that move or are found by their name.
func keeps(key string) bool {
	_, pointer := segment.ParseKey(key)
	return pointer || agents.IsManifest(key) || manifestPath.MatchString(key) || collectedPath.MatchString(key) ||
		path.Base(key) == "current" && path.Dir(path.Dir(key)) == "weights"
}

// list goes through the store and notes what is not reachable.
func (c *Collector) list(ctx context.Context) error {
	n := 0
	for info, err := range c.Store.List(ctx, "") {
		if err != nil {
			return err
		}
		n++
		c.show("%d objects listed", n)
		kind, _ := kindOf(info.Key)
		k := c.kinds[kind]
		k.Objects, k.Bytes = k.Objects+1, k.Bytes+info.Size
		if kind == kindOther || keeps(info.Key) {
			continue
		}
		reached, err := c.marks.reached(info.Key)
		switch {
		case err != nil:
			return err
		case reached:
		case info.Modified.IsZero() || !info.Modified.Before(c.Cutoff):
			k.Young++
		default:
			k.Unreachable, k.Garbage = k.Unreachable+1, k.Garbage+info.Size
			if err := c.marks.suspect(Candidate{info.Key, info.Size, info.Modified}); err != nil {
				return err
			}
		}
	}
	return nil
}

// sweptAtOnce is how many objects are deleted after each look at what the histories say by now.
const sweptAtOnce = 500

// sweep deletes what is unreachable and still is.
func (c *Collector) sweep(ctx context.Context) error {
	left := 0
	deleted := 0
	for s, err := range c.marks.suspects() {
		if err != nil {
			return err
		}
		if left--; left < 0 {
			if err := c.markHistories(ctx); err != nil {
				return err
			}
			left = sweptAtOnce - 1
		}
		gone, err := c.delete(ctx, s)
		if err != nil {
			return err
		}
		if gone {
			deleted++
			c.show("%d objects deleted", deleted)
		}
	}
	return nil
}

// delete deletes an object unless it is reachable by now, or was written again.
func (c *Collector) delete(ctx context.Context, s Candidate) (bool, error) {
	reached, err := c.marks.reached(s.Key)
	if err != nil || reached {
		return false, err
	}
	info, err := c.Store.Stat(ctx, s.Key)
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	if err != nil || !info.Modified.Before(c.Cutoff) {
		return false, err
	}
	if err := c.Store.Delete(ctx, s.Key); err != nil {
		return false, err
	}
	kind, _ := kindOf(s.Key)
	k := c.kinds[kind]
	k.Deleted, k.Freed = k.Deleted+1, k.Freed+s.Size
	return true, nil
}
