package main

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/index/segment"
	"github.com/rondo-rl/rondo/storage"
)

// collector finds the objects of a store that nothing reaches.
//
// It lists what is unreachable only after it has read every history, and looks at the histories' new events and at the object's age
// again right before it deletes. What a writer has uploaded, or relied upon, shortly before is young: storage.PutBlob sees to that.
type collector struct {
	log   *eventlog.Log
	store storage.Store
	show  *progress
	marks *marks
	// cutoff is the moment before which an object must have been written to be deleted.
	cutoff time.Time
	// abandoned are runs whose history is lost, and what only they reached with it.
	abandoned []string
	// read is how far each run was read, and in which incarnation of its stream (none: in its archive).
	read  map[string]position
	kinds map[string]*kindReport
	// found is told of each object that may be deleted.
	found func(candidate)
}

type position struct {
	created time.Time
	last    uint64
}

// kindReport counts the objects of one kind.
type kindReport struct {
	Kind        string `json:"kind"`
	Objects     int64  `json:"objects"`
	Bytes       int64  `json:"bytes"`
	Unreachable int64  `json:"unreachable"` // and old enough to be deleted
	Garbage     int64  `json:"unreachable_bytes"`
	Young       int64  `json:"young"` // unreachable, but too young
	Deleted     int64  `json:"deleted"`
	Freed       int64  `json:"deleted_bytes"`
}

// collect marks what is reachable and lists the rest; with sweep it deletes that.
func (c *collector) collect(ctx context.Context, sweep bool) error {
	c.read, c.kinds = map[string]position{}, map[string]*kindReport{}
	for _, kind := range objectKinds {
		c.kinds[kind] = &kindReport{Kind: kind}
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
		c.found(s)
	}
	if !sweep {
		return nil
	}
	return c.sweep(ctx)
}

// keeps are objects that move or are found by their name.
func keeps(key string) bool {
	_, pointer := segment.ParseKey(key)
	return pointer || manifestPath.MatchString(key) || path.Base(key) == "current" && path.Dir(path.Dir(key)) == "weights"
}

// list goes through the store and notes what is not reachable.
func (c *collector) list(ctx context.Context) error {
	n := 0
	for info, err := range c.store.List(ctx, "") {
		if err != nil {
			return err
		}
		n++
		c.show.show("%d objects listed", n)
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
		case info.Modified.IsZero() || !info.Modified.Before(c.cutoff):
			k.Young++
		default:
			k.Unreachable, k.Garbage = k.Unreachable+1, k.Garbage+info.Size
			if err := c.marks.suspect(candidate{info.Key, info.Size, info.Modified}); err != nil {
				return err
			}
		}
	}
	return nil
}

// sweptAtOnce is how many objects are deleted after each look at what the histories say by now.
const sweptAtOnce = 500

// sweep deletes what is unreachable and still is.
func (c *collector) sweep(ctx context.Context) error {
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
			c.show.show("%d objects deleted", deleted)
		}
	}
	return nil
}

// delete deletes an object unless it is reachable by now, or was written again.
func (c *collector) delete(ctx context.Context, s candidate) (bool, error) {
	reached, err := c.marks.reached(s.Key)
	if err != nil || reached {
		return false, err
	}
	info, err := c.store.Stat(ctx, s.Key)
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	if err != nil || !info.Modified.Before(c.cutoff) {
		return false, err
	}
	if err := c.store.Delete(ctx, s.Key); err != nil {
		return false, err
	}
	kind, _ := kindOf(s.Key)
	k := c.kinds[kind]
	k.Deleted, k.Freed = k.Deleted+1, k.Freed+s.Size
	return true, nil
}
