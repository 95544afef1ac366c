package utilisation

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rondo-rl/rondo/services/generator"
	"github.com/rondo-rl/rondo/slots"
)

// Sharing is how the runs of one service share its slots, by the real
// package slots in virtual time.
type Sharing struct {
	Slots   int `json:"slots"`
	Idle    int `json:"idle"`    // runs that have a short call once a minute
	Busy    int `json:"busy"`    // runs that always have calls
	Hanging int `json:"hanging"` // runs whose calls all hang, and fail in the end
	// Least and Most are the slot time of the busy runs with the least and the most of it, as parts
	// of all slots' time, and Hung is that of the hanging ones together.
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
	Hung  float64 `json:"hung"`
}

// Times of the simulated calls, in seconds. The first part of each simulation is not measured.
const (
	pullSeconds   = 0.002
	callSeconds   = 10.0 // of busy runs, in the mean
	hangSeconds   = 600.0
	idlePause     = 60.0
	idleCall      = 0.1
	settleSeconds = 1200.0
	shareSeconds  = 3600.0
)

// shareAll simulates who shares: one run beside many idle ones, equal ones, and equal
// ones beside one that hangs.
func shareAll(seed uint64) (all []Sharing) {
	for _, s := range []Sharing{{Idle: 50, Busy: 1}, {Busy: 8}, {Idle: 50, Busy: 8, Hanging: 1}} {
		s.Slots = generator.DefaultOptions().Slots
		all = append(all, share(s, seed))
	}
	return all
}

// tenant is a run with calls at the service.
type tenant struct {
	slots.Tenant
	always  bool
	well    bool
	seconds func() float64
	waiting int // calls
	request *slots.Request
	used    float64 // slot time that was measured, in seconds
}

// sharing is the service.
type sharing struct {
	now     float64
	later   pending
	tenants []*tenant
}

func share(s Sharing, seed uint64) Sharing {
	p, rng := &sharing{}, rand.New(rand.NewPCG(seed, 3))
	service := slots.NewWithClock(s.Slots, func() time.Time {
		return epoch.Add(
			time.Duration(p.now * float64(time.Second)))
	})
	join := func(kind string, n int, like tenant) {
		for i := range n {
			t := like
			t.Tenant = service.Tenant(fmt.Sprint(kind, i))
			p.tenants = append(p.tenants, &t)
		}
	}
	join("busy", s.Busy, tenant{always: true, well: true,
		seconds: func() float64 { return 2 * callSeconds * rng.Float64() }})
	join("hanging", s.Hanging, tenant{always: true, seconds: func() float64 { return hangSeconds }})
	join("idle", s.Idle, tenant{well: true, seconds: func() float64 { return idleCall }})
	for i, t := range p.tenants[s.Busy+s.Hanging:] {
		p.later.add(idlePause*float64(i)/float64(s.Idle), func() { p.come(t) })
	}
	for _, t := range p.tenants {
		p.ask(t)
	}
	for p.deliver(); p.later.Len() > 0 && p.later.items[0].at < settleSeconds+shareSeconds; p.deliver() {
		p.now = p.later.items[0].at
		p.later.take()()
	}
	s.Least = 1
	for i, t := range p.tenants[:s.Busy+s.Hanging] {
		part := t.used / shareSeconds / float64(s.Slots)
		if i < s.Busy {
			s.Least, s.Most = min(s.Least, part), max(s.Most, part)
		} else {
			s.Hung += part
		}
	}
	return s
}

// come brings a call of an idle run, now and once a minute.
func (p *sharing) come(t *tenant) {
	t.waiting++
	p.ask(t)
	p.later.add(p.now+idlePause, func() { p.come(t) })
}

// left is how many slots a run can use.
func (t *tenant) left() int {
	if t.always {
		return t.Total()
	}
	return t.waiting
}

// ask asks for slots, as a subscription does that has found messages.
func (p *sharing) ask(t *tenant) {
	if n := t.left(); n > 0 && t.request == nil {
		t.request = t.Ask(n)
	}
}

// deliver takes the leases that were given.
func (p *sharing) deliver() {
	for given := true; given; {
		given = false
		for _, t := range p.tenants {
			if t.request == nil {
				continue
			}
			select {
			case lease := <-t.request.Lease():
				given, t.request = true, nil
				p.later.add(p.now+pullSeconds, func() { p.pulled(t, lease) })
			default:
			}
		}
	}
}

// pulled is the end of a pull: its calls begin, and the run asks for more before it ends the lease.
func (p *sharing) pulled(t *tenant, lease *slots.Lease) {
	came := min(lease.N, t.left())
	if !t.always {
		t.waiting -= came
	}
	for range came {
		began, seconds := p.now, t.seconds()
		from, to := max(began, settleSeconds), min(began+seconds, settleSeconds+shareSeconds)
		t.used += max(0, to-from)
		p.later.add(began+seconds, func() { t.Settled(t.well) })
	}
	p.ask(t)
	t.End(lease, lease.N-came)
}
