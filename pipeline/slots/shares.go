package slots

import (
	"math"
	"time"
)

// A tenant that is alone may have all slots. As soon as there are others, the number that one has in work is bounded: its work may hang
// for as long as the handler lets it, nothing takes a slot back before that, and the others must find one at once.

const (
	// untrustedShare is the part of the slots, one in so many, of a tenant without a success yet, or whose last message failed: a run
	// whose inference server is away, or hangs.
	untrustedShare = 4
	// untrustedTogether is the part of all such tenants together.
	untrustedTogether = 2
	// keptShare is the part that no tenant may have: a new one finds it free.
	keptShare = 8
	// soon is how long a new tenant may wait for its share. Others may have more than their share only as far as their calls end so fast
	// that the new one gets its share by then: nothing takes a slot back from a call.
	soon = time.Second
	// recent is the time constant over which slot time counts: after it, a second of slot time counts 1/e of a second.
	recent = time.Minute
	// leastCall is the least that a call is expected to take, so that calls that take no time are compared by their number.
	leastCall = 10 * time.Millisecond
)

// standing is the record of a tenant.
type standing struct {
	subscriptions int
	// trusted: the last of its messages was handled well.
	trusted bool
	// slotTime is how long its slots were in work recently, in seconds, and ended how many of its messages were settled.
	slotTime, ended float64
	// lift counts as slot time besides: as much as the others had used when it came. It has no claim to the time before.
	lift float64
	// active is when it had work or wanted some for the last time.
	active time.Time
}

// callTime is how long a call of the tenant holds its slot, in seconds, calls under way included. It is recent at most.
func (p *standing) callTime(inWork int) float64 {
	return p.slotTime / max(1, p.ended+float64(inWork))
}

// account brings the slot times up to now. The caller holds mu.
func (s *Slots) account() {
	now := time.Now()
	elapsed := now.Sub(s.accounted).Seconds()
	s.accounted = now
	if elapsed <= 0 {
		return
	}
	faded := math.Exp(-elapsed / recent.Seconds())
	for name, p := range s.standing {
		n := s.inWork(name)
		if n > 0 {
			p.active = now
		}
		p.slotTime = p.slotTime*faded + float64(n)*elapsed
		p.ended *= faded
		p.lift *= faded
	}
}

// wants notes that a tenant has work to do. One that comes after a while begins level with the one that has used least. The caller holds mu.
func (s *Slots) wants(tenant string) {
	p := s.standing[tenant]
	if p == nil {
		return
	}
	now := time.Now()
	if now.Sub(p.active) > soon {
		least := math.Inf(1)
		for name, other := range s.standing {
			if name != tenant && s.inWork(name) > 0 {
				least = min(least, other.slotTime+other.lift)
			}
		}
		if !math.IsInf(least, 1) {
			p.lift = max(p.lift, least-p.slotTime)
		}
	}
	p.active = now
}

// due is the slot time that a tenant has used recently, and will have used when its calls under way have ended. The least comes next.
func (s *Slots) due(tenant string) float64 {
	n := s.inUse[tenant]
	p := s.standing[tenant]
	if p == nil {
		return float64(n)
	}
	return p.slotTime + p.lift + float64(n)*max(leastCall.Seconds(), p.callTime(s.inWork(tenant)))
}

// share is how many slots a tenant may have beside others that are active: an equal part, and more on top the sooner its calls end.
// A tenant that had work within the time of a few calls counts as active: its next calls must not find all slots taken.
func (s *Slots) share(tenant string) int {
	p := s.standing[tenant]
	call := p.callTime(s.inWork(tenant))
	if call <= soon.Seconds() {
		return s.total
	}
	others, now := 0, time.Now()
	memory := recent + time.Duration(2*call*float64(time.Second))
	for name, other := range s.standing {
		if name != tenant && !other.active.IsZero() && now.Sub(other.active) <= memory {
			others++
		}
	}
	if others == 0 {
		return s.total
	}
	fair := float64(s.total) / float64(others+1)
	return max(1, int(fair/(1-soon.Seconds()/call)))
}

// Join counts a subscription of the tenant.
func (t Tenant) Join() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.standing[t.name] == nil {
		t.standing[t.name] = &standing{}
	}
	t.standing[t.name].subscriptions++
}

// Leave ends a subscription; with the last one the tenant is forgotten.
func (t Tenant) Leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.standing[t.name]; p != nil {
		if p.subscriptions--; p.subscriptions == 0 {
			delete(t.standing, t.name)
		}
	}
	t.grant() // the bounds of those that are left may have gone
}

// Settled gives back the slot of a message, which was handled well or not.
func (t Tenant) Settled(well bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.standing[t.name]; p != nil {
		t.account()
		p.trusted = well
		p.ended++
	}
	t.giveBack(t.name, 1)
}

// inWork is how many slots a tenant has without those on which its pulls wait.
func (s *Slots) inWork(tenant string) int {
	n := s.inUse[tenant]
	for _, l := range s.resting {
		if l.tenant == tenant {
			n -= l.N
		}
	}
	return n
}

// capacity is how many more slots a tenant may have, whether they are free or not.
func (s *Slots) capacity(tenant string) int {
	if len(s.standing) < 2 {
		return s.total
	}
	used := s.inWork(tenant)
	if p := s.standing[tenant]; p != nil && p.trusted {
		return min(max(1, s.total-max(1, s.total/keptShare)), s.share(tenant)) - used // the only slot goes from one to the other
	}
	together := 0
	for name, p := range s.standing {
		if !p.trusted {
			together += s.inWork(name)
		}
	}
	if used == 0 {
		return max(1, min(s.total/untrustedShare, s.total/untrustedTogether-together)) // how else could it earn trust
	}
	return min(s.total/untrustedShare-used, s.total/untrustedTogether-together)
}
