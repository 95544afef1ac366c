package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
)

// waiter is a call that waits for one of its servers.
type waiter struct {
	priority int
	order    uint64
	among    []target
	came     chan struct{} // closed when it has a place, or is shed
	look     chan struct{} // a server wants to be left alone: is there still something to wait for?
	at       target
	err      error
}

// admit takes a place at the first of the targets that is ready; ask gives it back. It waits
// where all of them are taken, and until c.Until where they want to be left alone: then its error
// is an *inference.Failure.
func (f *Fleet) admit(ctx context.Context, c Call, among []target) (target, error) {
	w := &waiter{priority: c.Priority, among: among, came: make(chan struct{}), look: make(chan struct{}, 1)}
	f.mu.Lock()
	f.enqueue(w)
	asked, comeBack := false, true // where none of them has answered, the log says whether one ever did
	f.serve(time.Now())
	for {
		now := time.Now()
		if w.at.replica != nil || w.err != nil {
			f.mu.Unlock()
			return w.at, w.err
		}
		f.askSlots(ctx, among, now)
		var until time.Time
		if refusal := resting(among, now); refusal != nil {
			if refusal.Away && !asked && !slices.ContainsFunc(among, func(t target) bool { return t.answered }) {
				asked = true
				f.mu.Unlock()
				comeBack = c.Answered != nil && c.Answered(ctx)
				f.mu.Lock()
				continue
			}
			refusal.Away = refusal.Away && (comeBack || f.mayLoad(refusal, now, among...))
			if now.Add(refusal.After).After(c.Until) || !refusal.Away && !refusal.Throttled {
				f.drop(w)
				f.mu.Unlock()
				return target{}, refusal
			}
			until = c.Until
		}
		f.mu.Unlock()
		err := w.wait(ctx, until)
		f.mu.Lock()
		if err != nil && w.at.replica != nil { // its turn came at the same moment
			w.at.leave(w.at.since)
			f.serve(time.Now())
		}
		if err != nil {
			f.drop(w)
			f.mu.Unlock()
			return target{}, err
		}
	}
}

// wait waits for a place, a reason to look again, or the end of patience; zero is none.
func (w *waiter) wait(ctx context.Context, until time.Time) error {
	var over <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-w.came:
	case <-w.look:
	case <-over:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// look lets those who wait look again.
func (f *Fleet) look() {
	for _, w := range f.waiting {
		select {
		case w.look <- struct{}{}:
		default:
		}
	}
}

// precedes says who comes first.
func (w *waiter) precedes(o *waiter) bool {
	if w.priority != o.priority {
		return w.priority > o.priority
	}
	return w.order < o.order
}

// overloadedFor is when calls may come again for which there is no room to wait.
const overloadedFor = time.Second

// enqueue puts a call in its place. Where too many wait, the last in the order is shed.
func (f *Fleet) enqueue(w *waiter) {
	w.order = f.order
	f.order++
	i, _ := slices.BinarySearchFunc(f.waiting, w, func(a, b *waiter) int {
		if a.precedes(b) {
			return -1
		}
		return 1
	})
	f.waiting = slices.Insert(f.waiting, i, w)
	if len(f.waiting) <= f.opts.Waiting {
		return
	}
	last := f.waiting[len(f.waiting)-1]
	f.drop(last)
	last.err = &inference.Failure{
		Class: events.ClassEndpoint, Status: http.StatusTooManyRequests, Throttled: true, After: overloadedFor,
		Err: errors.New("too many calls wait for the inference servers: come again"),
	}
	close(last.came)
}

func (f *Fleet) drop(w *waiter) {
	if i := slices.Index(f.waiting, w); i >= 0 {
		f.waiting = slices.Delete(f.waiting, i, i+1)
	}
}

// serve gives places to those who wait, in their order. The caller holds the lock.
func (f *Fleet) serve(now time.Time) {
	f.waiting = slices.DeleteFunc(f.waiting, func(w *waiter) bool {
		i := slices.IndexFunc(w.among, func(t target) bool { return t.ready(now, t.slots) })
		if i < 0 {
			return false
		}
		w.at = w.among[i]
		w.at.since = w.at.enter()
		close(w.came)
		return true
	})
	var next time.Time
	for _, w := range f.waiting {
		if at := nextAt(w.among, now); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if f.timer != nil {
		f.timer.Stop()
	}
	if !next.IsZero() {
		f.timer = time.AfterFunc(next.Sub(now), f.tick)
	}
}

func (f *Fleet) tick() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.serve(time.Now())
}

// resting is the refusal of a call all of whose servers are left alone, with the time
// until the first of them may be asked; nil when one of them only has no free place. Away
// says that it is in trouble.
func resting(among []target, now time.Time) *inference.Failure {
	var first *replica
	for _, t := range among {
		if !t.resting(now) {
			return nil
		}
		if first == nil || t.until.Before(first.until) {
			first = t.replica
		}
	}
	refusal := &inference.Failure{Class: events.ClassEndpoint, After: max(leastRest, first.until.Sub(now))}
	if first.open {
		refusal.Class, refusal.Status, refusal.Away = first.last.Class, first.last.Status, true
		refusal.Err = fmt.Errorf("%s is left alone after %d failures in a row, of which the last was: %w", first.url,
			first.failures, first.last.Err)
		return refusal
	}
	refusal.Status, refusal.Throttled = http.StatusTooManyRequests, true
	refusal.Err = fmt.Errorf("%s wants to be left alone for a while", first.url)
	return refusal
}

// nextAt is the next moment at which there may be a place though no request ends;
// zero when there is none.
func nextAt(among []target, now time.Time) (next time.Time) {
	for _, t := range among {
		at := t.until
		if !now.Before(at) {
			at = t.stepAt(now, t.slots)
		}
		if at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}
