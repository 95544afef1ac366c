package pipeline

import (
	"context"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage/projection"
)

// Watcher is told how runs go by the one process that decides: what it counts is counted once. It
// must not hold the decider up.
type Watcher interface {
	// Event is an event that came while this process decided.
	Event(run string, e events.Event)
	// State is the decider's state, from time to time and at once when this
	// process begins to decide.
	State(ctx context.Context, run string, d Decider, v projection.View, now time.Time)
	// Leave says that this process decides no more.
	Leave(run string)
}

// watchEvery is how often a Watcher is told the state.
const watchEvery = 15 * time.Second

// watching is what a session tells a Watcher.
type watching struct {
	watcher Watcher // nil: nobody watches
	from    uint64  // events up to this one were there before this process decided
	last    time.Time
	told    bool
}

// event tells of one that was folded.
func (s *session) watchEvent(e events.Event) {
	if s.watch.watcher != nil && e.Seq > s.watch.from && s.lease.isHeld() {
		s.watch.watcher.Event(s.run, e)
	}
}

// watchState tells the state when it is time.
func (s *session) watchState(ctx context.Context) {
	w := &s.watch
	switch {
	case w.watcher == nil:
	case !s.lease.isHeld():
		s.unwatch()
	case s.ready() && time.Since(w.last) >= watchEvery:
		w.last, w.told = time.Now(), true
		w.watcher.State(ctx, s.run, s.decider, s.db, w.last)
	}
}

// unwatch ends what was told.
func (s *session) unwatch() {
	if s.watch.told {
		s.watch.watcher.Leave(s.run)
	}
	s.watch.told, s.watch.last = false, time.Time{}
}
