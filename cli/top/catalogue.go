package top

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// Bounds of what is kept of the catalogue.
const (
	maxReplicas = 256
	maxRuns     = 1000
)

// catalogue folds what outlives runs.
type catalogue struct {
	mu       sync.Mutex
	runs     []string // in the order of their openings
	closed   map[string]bool
	earlier  int              // runs that are not kept
	current  map[string]int64 // policy → version
	replicas []Replica        // the one that spoke last is at the end
	letters  Letters
	through  uint64 // the sequence that is folded
	read     bool   // to the end that it had when it was looked at first
}

func newCatalogue() *catalogue {
	return &catalogue{closed: map[string]bool{}, current: map[string]int64{}}
}

// catchUp folds what the catalogue has now.
func (c *catalogue) catchUp(ctx context.Context, log *eventlog.Log) error {
	err := each(ctx, log, events.Catalogue, c.through+1, c.apply)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = c.read || err == nil
	return err
}

func (c *catalogue) isRead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read
}

// apply folds the next event of the catalogue.
func (c *catalogue) apply(e events.Event) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.through = e.Seq
	switch e.Type {
	case events.RunOpenedType:
		c.forget(e.Entity)
		if c.runs = append(c.runs, e.Entity); len(c.runs) > maxRuns {
			c.forget(c.runs[0])
			c.earlier++
		}
	case events.RunClosedType:
		if slices.Contains(c.runs, e.Entity) {
			c.closed[e.Entity] = true
		}
	case events.LogForgottenType:
		c.forget(e.Entity)
	case events.DeadLetteredType:
		dead, err := events.Data[events.DeadLettered](e)
		c.letters = Letters{c.letters.Total + 1, dead.Reason, e.Time}
		return err
	case events.WeightsPublishedType:
		published, err := events.Data[events.WeightsPublished](e)
		c.current[e.Entity] = max(c.current[e.Entity], published.Version)
		return err
	case events.WeightsActivatedType:
		served, err := events.Data[events.WeightsActivated](e)
		c.replicas = slices.DeleteFunc(c.replicas, func(r Replica) bool {
			return r.Policy == e.Entity &&
				r.Name == served.Replica
		})
		if c.replicas = append(c.replicas, Replica{Policy: e.Entity, Name: served.Replica, Version: served.Version,
			Lost: served.Lost, At: e.Time}); len(c.replicas) > maxReplicas {
			c.replicas = slices.Delete(c.replicas, 0, 1)
		}
		return err
	}
	return nil
}

func (c *catalogue) forget(run string) {
	c.runs = slices.DeleteFunc(c.runs, func(name string) bool { return name == run })
	delete(c.closed, run)
}

// selectRuns are the runs to show, open ones first, the newest first of each; more
// is how many are left out.
func (c *catalogue) selectRuns(most int) (names []string, more int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, closed := range []bool{false, true} {
		for _, run := range slices.Backward(c.runs) {
			if c.closed[run] == closed {
				names = append(names, run)
			}
		}
	}
	kept := min(most, len(names))
	return names[:kept], len(names) - kept + c.earlier
}

// fill writes into a snapshot what the catalogue knows.
func (c *catalogue) fill(s *Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.DeadLetters = c.letters
	s.Replicas = make([]Replica, 0, len(c.replicas))
	for _, r := range c.replicas {
		r.Behind = max(0, c.current[r.Policy]-r.Version)
		s.Replicas = append(s.Replicas, r)
	}
	slices.SortFunc(s.Replicas, func(a, b Replica) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy),
			cmp.Compare(a.Name, b.Name))
	})
}
