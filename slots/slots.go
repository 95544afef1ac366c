// Package slots bounds how many messages a service has in work at once, and shares that capacity
// between tenants. It knows nothing of where messages come from.
package slots

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"
)

// Slots is the capacity of a service. A pull leases a slot for each message that it asks for, so
// never more messages are on their way than there are free slots. No slot is free while anyone
// waits for one, see next.
type Slots struct {
	mu        sync.Mutex
	total     int
	free      int
	tenants   map[string]*tenant
	waiting   []*Request // in the order in which they came
	pulling   []*Request // their leases have not ended
	accounted time.Time  // until when the slot times are known
	now       func() time.Time
}

// New makes n slots.
func New(n int) *Slots { return NewWithClock(n, time.Now) }

// NewWithClock makes n slots for a simulation that has a clock of its own.
func NewWithClock(n int, now func() time.Time) *Slots {
	return &Slots{total: n, free: n, tenants: map[string]*tenant{}, now: now}
}

// Total is the number of slots, free or not.
func (s *Slots) Total() int { return s.total }

// Load is the part of the slots that is in work, 0 to 1.
func (s *Slots) Load() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(s.total-s.free) / float64(s.total)
}

// Tenant is one of those that share the slots, such as a run.
type Tenant struct {
	*Slots
	name, kind string
}

// Tenant names who a use of slots is counted for.
func (s *Slots) Tenant(name string) Tenant { return Tenant{s, name, ""} }

// Kind is the tenant with work of some kind, which fails apart: what others of its kinds do well
// says nothing about this one.
func (t Tenant) Kind(kind string) Tenant { return Tenant{t.Slots, t.name, kind} }

// tenant is what is known of one. One of which nothing is known is as one that was never there.
type tenant struct {
	inWork int
	// requests that wait, or whose leases have not ended.
	requests int
	// used is its slot time of the last minute, in seconds; after a minute a
	// second counts 1/e of a second.
	used float64
	// failed are the kinds of which the last message was not handled well.
	failed map[string]bool
}

// recent is the time constant of the slot times.
const recent = time.Minute

// Request waits for a lease.
type Request struct {
	tenant  *tenant
	want    int // slots that it has not been given
	given   int
	granted chan *Lease
}

// Lease gives a number of slots to one pull.
type Lease struct {
	N       int
	request *Request
}

// Ask asks for slots for messages that are there: as many as wanted when they are free, at least
// one. The lease comes when there are any.
func (t Tenant) Ask(want int) *Request {
	r := &Request{want: want, granted: make(chan *Lease, 1)}
	t.mu.Lock()
	defer t.mu.Unlock()
	r.tenant = t.tenant(t.name)
	r.tenant.requests++
	t.waiting = append(t.waiting, r)
	t.grant()
	return r
}

// Lease is where the request's slots come.
func (r *Request) Lease() <-chan *Lease { return r.granted }

// Forget takes a request back.
func (s *Slots) Forget(r *Request) {
	s.mu.Lock()
	if slices.Contains(s.waiting, r) {
		s.waiting = removeRequest(s.waiting, r)
		r.tenant.requests--
	}
	s.mu.Unlock()
	select {
	case l := <-r.granted: // at the last moment
		s.End(l, l.N)
	default:
	}
}

// End ends a pull and gives back the slots that no message came for. A tenant that has more to do
// asks anew before it ends a pull.
func (s *Slots) End(l *Lease, unused int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pulling = removeRequest(s.pulling, l.request)
	l.request.tenant.requests--
	s.giveBack(l.request.tenant, unused)
}

// Do does something in a slot, when there is one. It gives the context's error where that
// ended first. What fails when the context has ended says nothing about the tenant. The zero
// Tenant has no need of slots.
func (t Tenant) Do(ctx context.Context, do func() (well bool)) error {
	if t.Slots == nil {
		do()
		return nil
	}
	r := t.Ask(1)
	select {
	case l := <-r.Lease():
		t.End(l, 0)
	case <-ctx.Done():
		t.Forget(r)
		return ctx.Err()
	}
	well := false
	defer func() {
		if !well && ctx.Err() != nil {
			t.Release()
		} else {
			t.Settled(well)
		}
	}()
	well = do()
	return nil
}

// Settled gives back the slot of a message, which was handled well or not.
func (t Tenant) Settled(well bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tenant := t.tenant(t.name)
	if well {
		delete(tenant.failed, t.kind)
	} else {
		tenant.failed[t.kind] = true
	}
	t.giveBack(tenant, 1)
}

// Release gives back the slot of a message that says nothing about its tenant.
func (t Tenant) Release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.giveBack(t.tenant(t.name), 1)
}

// giveBack takes slots back. The caller holds mu.
func (s *Slots) giveBack(t *tenant, n int) {
	s.account()
	t.inWork -= n
	s.free += n
	s.grant()
}

// grant hands free slots to waiting requests. The caller holds mu.
func (s *Slots) grant() {
	s.account()
	for s.free > 0 {
		r := s.next()
		if r == nil {
			break
		}
		s.free--
		r.tenant.inWork++
		r.given++
		r.want--
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(r *Request) bool {
		if r.given == 0 {
			return false
		}
		s.pulling = append(s.pulling, r)
		r.granted <- &Lease{N: r.given, request: r}
		return true
	})
}

// next is the request that gets a free slot: one of the tenant that has the fewest slots in work,
// of equals the one that used the least slot time. A pull under way wants, too, what its request
// was not given: where its tenant comes first the slot waits for the end of that pull, and next is
// nil. It is nil as well where nobody may have the slot. The caller holds mu.
func (s *Slots) next() (best *Request) {
	pulling, tries := false, s.failing()
	for _, r := range s.waiting {
		if s.may(r, tries) && (best == nil || s.precedes(r, best)) {
			best = r
		}
	}
	for _, r := range s.pulling {
		if s.may(r, tries) && best != nil && r.tenant != best.tenant && s.precedes(r, best) {
			best, pulling = r, true
		}
	}
	if pulling {
		return nil
	}
	return best
}

// precedes says which of two requests comes first. Of the requests of one tenant it is the one
// that has been given least.
func (s *Slots) precedes(a, b *Request) bool {
	x, y := a.tenant, b.tenant
	switch {
	case x.inWork != y.inWork:
		return x.inWork < y.inWork
	case x != y:
		return x.used < y.used
	}
	return a.given < b.given
}

// keptShare is the part of the slots, one in so many and one at least, that no tenant takes whose
// last message failed: its work may hang, nothing takes a slot back from a handler, and others find
// these slots at once. The only slot is not kept.
const keptShare = 8

// failing counts the slots in work of tenants whose last message failed. The caller holds mu.
func (s *Slots) failing() (n int) {
	for _, t := range s.tenants {
		if len(t.failed) > 0 {
			n += t.inWork
		}
	}
	return n
}

// may reports whether a request may have another slot. A tenant whose last message failed tries one
// at a time also while others use all slots, or it could never succeed again. tries are the slots
// that such tenants have: those that are kept are not theirs.
func (s *Slots) may(r *Request, tries int) bool {
	kept := min(s.total-1, max(1, s.total/keptShare))
	if len(r.tenant.failed) == 0 || s.free > kept {
		return r.want > 0
	}
	return r.want > 0 && r.tenant.inWork == 0 && tries < s.total-kept
}

// account brings the slot times up to now, and forgets tenants of which nothing is
// left. The caller holds mu.
func (s *Slots) account() {
	now := s.now()
	elapsed := now.Sub(s.accounted).Seconds()
	s.accounted = now
	faded := math.Exp(-elapsed / recent.Seconds())
	for name, t := range s.tenants {
		t.used = float64(t.used*faded) + float64(float64(t.inWork)*elapsed)
		if t.inWork == 0 && t.requests == 0 && t.used < time.Millisecond.Seconds() {
			delete(s.tenants, name)
		}
	}
}

func (s *Slots) tenant(name string) *tenant {
	t := s.tenants[name]
	if t == nil {
		t = &tenant{failed: map[string]bool{}}
		s.tenants[name] = t
	}
	return t
}

func removeRequest(list []*Request, r *Request) []*Request {
	return slices.DeleteFunc(list, func(other *Request) bool { return other == r })
}
