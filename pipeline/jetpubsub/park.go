package jetpubsub

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rondo-rl/rondo/slots"
)

// slot is that of a message in work, which a message that waits does without.
type slot struct {
	tenant slots.Tenant
	parked *atomic.Int64 // messages of the subscription that wait

	mu      sync.Mutex
	lent    bool // somebody else may have it
	settled bool
}

// settle gives the slot back at the end, unless it is lent.
func (s *slot) settle(well bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled = true
	if !s.lent {
		s.tenant.Settled(well)
	}
}

// Park lets a message wait without its slot: others may be in work meanwhile, and the server
// goes on to be told that this one is. It reports whether the message has a slot again; it has
// not when the context ended.
func (d *Delivery) Park(ctx context.Context, wait time.Duration) bool {
	s := &d.slot
	s.parked.Add(1)
	defer s.parked.Add(-1)
	s.mu.Lock()
	if !s.lent && !s.settled {
		s.lent = true
		s.tenant.Release()
	}
	s.mu.Unlock()
	rest(ctx, wait)
	if ctx.Err() != nil {
		return false
	}
	request := s.tenant.Ask(1)
	select {
	case <-ctx.Done():
		s.tenant.Forget(request)
		return false
	case lease := <-request.Lease():
		s.tenant.End(lease, 0)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lent = false
	if s.settled {
		s.tenant.Release()
	}
	return !s.settled
}

// parkedRest is how long a subscription rests before it looks again whether
// fewer of its messages wait.
const parkedRest = time.Second

// unparked is how many messages more may wait: as many as there are slots, so that an outage does
// not bring the whole stream into memory.
func (s *subscription) unparked() int { return s.cfg.Slots.Total() - int(s.parked.Load()) }

// unpark waits until a message more may wait.
func (s *subscription) unpark(ctx context.Context) {
	for ctx.Err() == nil && s.unparked() <= 0 {
		rest(ctx, parkedRest)
	}
}
