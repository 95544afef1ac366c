// Package slots bounds how many messages a service has in work at once, and shares that capacity between tenants by
// the slot time that each has used. It knows nothing of where messages come from.
package slots

import (
	"slices"
	"sync"
	"time"
)

// Slots is the capacity of a service. A pull leases a slot for each message that it asks for, so never more messages are
// on their way than there are free slots.
//
// Among tenants with a backlog, the one that has used the least slot time gets the next slot: a tenant with much to do,
// or with slow work, cannot keep the slots from the others. What one tenant may have beside others is bounded, see capacity.
type Slots struct {
	mu        sync.Mutex
	total     int
	free      int
	inUse     map[string]int // by tenant
	standing  map[string]*standing
	waiting   []*Request // in the order in which they came
	resting   []*Lease   // leases of pulls that wait for a message, the oldest first
	accounted time.Time  // until when the slot times are known
}

// New makes n slots.
func New(n int) *Slots {
	return &Slots{total: n, free: n, inUse: map[string]int{}, standing: map[string]*standing{}}
}

// Total is the number of slots, free or not.
func (s *Slots) Total() int { return s.total }

// Tenant is one of those that share the slots, such as a run.
type Tenant struct {
	*Slots
	name string
}

// Tenant names who a use of slots is counted for.
func (s *Slots) Tenant(name string) Tenant { return Tenant{s, name} }

// Request waits for a lease.
type Request struct {
	tenant  string
	want    int
	backlog bool // messages are known to wait for it
	granted chan *Lease
}

// Lease gives a number of slots to one pull.
type Lease struct {
	N int
	// Patience is how long the pull may wait for its first message; 0: it takes the messages that are there.
	Patience time.Duration
	// Recalled is closed when another pull needs the slots of one that waits.
	Recalled <-chan struct{}

	tenant string
	recall func() // closes Recalled, once
}

// WasRecalled reports whether another pull needs the slots.
func (l *Lease) WasRecalled() bool {
	select {
	case <-l.Recalled:
		return true
	default:
		return false
	}
}

// How long a pull may wait on its slots.
const (
	// Unhurried is the patience of a pull whose slots nobody else needs; it bounds the harm of a request that got lost.
	Unhurried = 30 * time.Second
	// turn is the patience of a pull when there are more quiet subscriptions than slots.
	turn = 25 * time.Millisecond
)

// Ask asks for slots: as many as wanted when they are free, at least one. The lease comes when there are any.
func (t Tenant) Ask(want int, backlog bool) *Request {
	r := &Request{tenant: t.name, want: want, backlog: backlog, granted: make(chan *Lease, 1)}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.account()
	if backlog {
		t.wants(t.name)
	}
	t.waiting = append(t.waiting, r)
	t.grant()
	return r
}

// Lease is where the request's slots come.
func (r *Request) Lease() <-chan *Lease { return r.granted }

// Forget takes a request back.
func (s *Slots) Forget(r *Request) {
	s.mu.Lock()
	s.waiting = slices.DeleteFunc(s.waiting, func(other *Request) bool { return other == r })
	s.mu.Unlock()
	select {
	case l := <-r.granted: // at the last moment
		s.End(l, l.N)
	default:
	}
}

// End ends a pull and gives back the slots that no message came for.
func (s *Slots) End(l *Lease, unused int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.account()
	s.resting = slices.DeleteFunc(s.resting, func(other *Lease) bool { return other == l })
	s.giveBack(l.tenant, unused)
}

// Release gives back the slot of a message that says nothing about its tenant.
func (t Tenant) Release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.giveBack(t.name, 1)
}

// giveBack takes slots back. The caller holds mu.
func (s *Slots) giveBack(tenant string, n int) {
	s.account()
	s.free += n
	if s.inUse[tenant] -= n; s.inUse[tenant] == 0 {
		delete(s.inUse, tenant)
	}
	s.grant()
}

// grant hands free slots to waiting requests, and recalls the slots of waiting pulls when there are none.
func (s *Slots) grant() {
	for s.free > 0 {
		i := s.next()
		if i < 0 {
			break
		}
		r := s.waiting[i]
		s.waiting = slices.Delete(s.waiting, i, i+1)
		l := s.leaseFor(r)
		s.free -= l.N
		s.inUse[r.tenant] += l.N
		if l.Patience > 0 {
			s.resting = append(s.resting, l)
		}
		r.granted <- l
	}
	recalls := 0
	for _, r := range s.waiting {
		if s.capacity(r.tenant) > 0 {
			recalls++
		}
	}
	for _, l := range s.resting[:min(recalls, len(s.resting))] {
		l.recall()
	}
}

// next finds the request to serve among those whose tenants may have more: the first one, or, where that one has a backlog, the
// first of the tenant with a backlog whose slot time is least. A quiet subscription waits for its turn: it may have nothing to do.
// It is -1 when there is none.
func (s *Slots) next() int {
	first, best := -1, -1
	for i, r := range s.waiting {
		switch {
		case s.capacity(r.tenant) <= 0:
		case first < 0:
			first, best = i, i
		case s.waiting[first].backlog && r.backlog && s.due(r.tenant) < s.due(s.waiting[best].tenant):
			best = i
		}
	}
	return best
}

// leaseFor sizes a lease. Tenants with a backlog share the free slots, and each one's subscriptions share its part; a quiet
// subscription gets one slot to look for messages, and may wait on it while nobody needs it.
func (s *Slots) leaseFor(r *Request) *Lease {
	busy := map[string]int{}
	for _, other := range s.waiting {
		if other.backlog && s.capacity(other.tenant) > 0 {
			busy[other.tenant]++
		}
	}
	recalled := make(chan struct{})
	l := &Lease{N: 1, Recalled: recalled, tenant: r.tenant, recall: sync.OnceFunc(func() { close(recalled) })}
	switch {
	case r.backlog:
		busy[r.tenant]++
		l.N = min(r.want, s.capacity(r.tenant), max(1, s.free/(len(busy)*busy[r.tenant])))
	case len(busy) > 0:
	case s.free > len(s.waiting):
		l.Patience = Unhurried
	default:
		l.Patience = turn
	}
	return l
}
