package fleet

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
)

// Times and steps of a ramp.
const (
	// rampStep is how long the ramp waits until it doubles: an overloaded or broken server refuses
	// what it cannot take within that time.
	rampStep = 2 * time.Second
	// flatStep is how long it waits above the threshold, where it grows by a fourth of that.
	flatStep = 10 * time.Second
	// rateTime is the window in which failures are compared with answers
	// and with what is under way.
	rateTime = 10 * time.Second
	// reduceAfter failures at least, and more than one of reduceShare requests, reduce the ramp;
	// more than one of holdShare, and two at least, hold it.
	reduceAfter = 5
	reduceShare = 4
	holdShare   = 8
)

// rateWindow counts how requests ended within rateTime.
type rateWindow struct {
	began     time.Time
	good, bad int
}

func (w *rateWindow) count(now time.Time, good bool) {
	if now.Sub(w.began) >= rateTime {
		*w = rateWindow{began: now}
	}
	if good {
		w.good++
	} else {
		w.bad++
	}
}

// many reports whether so many requests fail that it may be the load.
func (w *rateWindow) many(inFlight int) bool {
	return w.good > 0 && w.bad >= reduceAfter && w.bad*reduceShare > w.bad+w.good+inFlight
}

// holds reports whether too many fail for the ramp to go up.
func (w *rateWindow) holds(now time.Time, inFlight int) bool {
	return now.Sub(w.began) < rateTime && w.bad > 1 && w.bad*holdShare > w.bad+w.good+inFlight
}

// stepAt is when the ramp goes up by itself; zero when it does not, as it is not used, or at its
// end, or the server has not taken a request yet.
func (r *replica) stepAt(now time.Time, slots int) time.Time {
	if !r.taken || !r.open && (r.current < int(r.allowed) || r.allowed >= float64(slots)) {
		return time.Time{}
	}
	wait := rampStep
	if r.allowed >= r.threshold {
		wait = flatStep
	}
	at := r.stepped.Add(wait)
	if r.rates.holds(now, r.current) {
		at = later(at, r.rates.began.Add(rateTime))
	}
	return at
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// step lets the ramp go up. A server whose circuit is open has not failed what tried it
// in that time: it is asked again, and the first failure that nothing speaks against
// opens the circuit again.
func (r *replica) step(now time.Time, slots int) {
	r.stepped, r.open = now, false
	if r.allowed < r.threshold {
		r.raise(min(2*r.allowed, r.threshold), slots)
	} else {
		r.raise(r.allowed+max(1, r.threshold/4), slots)
	}
}

// grow lets the ramp go up with an answer.
func (r *replica) grow(slots int) {
	if r.allowed < r.threshold {
		r.raise(r.allowed+1, slots)
	} else {
		r.raise(r.allowed+1/r.allowed, slots)
	}
}

func (r *replica) raise(to float64, slots int) {
	r.allowed = max(r.allowed, min(to, float64(slots)))
	if r.reduced > 0 && r.allowed >= r.reduced {
		r.reduced, r.reductions, r.restored = 0, 0, true
	}
}

// reduce halves the ramp.
func (r *replica) reduce(cause string) {
	if r.reduced == 0 {
		r.reduced = r.allowed
	}
	r.reducedBy, r.restored = cause, false
	r.reductions++
	r.allowed = max(1, r.allowed/2)
	r.threshold = r.allowed
	r.setbacks++
}

// limited reports whether the server has been found to take no more than its ramp allows.
func (r *replica) limited() bool { return !math.IsInf(r.threshold, 1) }

// room is how many requests may be under way.
func (r *replica) room() int {
	n := r.inFlight - r.current + int(r.allowed)
	if r.slots > 0 {
		n = min(n, r.slots)
	}
	return n
}

// Ramp is the pace at which a fleet asks one server, for callers with a clock of their own: a
// simulation of the fleet is held to the same rules as the fleet.
type Ramp struct {
	at      target
	callers int
}

// NewRamp is the ramp of a server that was never asked, and may have that many requests under way.
func NewRamp(slots int) *Ramp {
	r := &Ramp{at: target{replica: newReplica("simulated", ""), slots: slots}}
	r.at.replica.slots = slots
	return r
}

// Enter takes a place at the server, if it may be asked now.
func (r *Ramp) Enter(now time.Time) bool {
	if !r.at.ready(now, r.at.slots) {
		return false
	}
	r.at.take(now, r.at.enter())
	return true
}

// Answered gives the place of a request back that came to a turn.
func (r *Ramp) Answered(now time.Time) {
	r.at.settle(now, r.at.setbacks, r.at.slots, "", answered, nil)
}

// errGone is the failure of a server that is not there.
var errGone = &inference.Failure{Class: events.ClassEndpoint, Away: true, Err: errors.New("the server has gone")}

// Broke gives the place of a request back whose server has gone; since is what
// Setbacks was when it began.
func (r *Ramp) Broke(now time.Time, since int) {
	r.callers++
	r.at.settle(now, since, r.at.slots, fmt.Sprint(r.callers), away, errGone)
}

// Setbacks counts how often the ramp went down.
func (r *Ramp) Setbacks() int { return r.at.setbacks }

// Next is the next moment at which there may be a place though no request ends;
// zero when there is none.
func (r *Ramp) Next(now time.Time) time.Time { return nextAt([]target{r.at}, now) }

// Server is what one process knows of the server's capacity, beside what the server itself says.
func (r *Ramp) Server(url string) Server {
	return Server{URL: url, Slots: r.at.slots, Allowed: int(r.at.allowed), Limited: r.at.limited()}
}
