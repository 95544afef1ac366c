package fleet

import (
	"errors"
	"fmt"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
)

// Ramp is the pace at which a fleet asks one server, for callers with a clock of their own: a simulation of the fleet is held to the
// same rules as the fleet.
type Ramp struct {
	at    target
	board *agreement // of ramps that share; nil of one that is alone
}

// NewRamp is the ramp of a server that was never asked, and may have that many requests under way.
func NewRamp(slots int) *Ramp {
	r := &Ramp{at: target{replica: newReplica("simulated"), slots: slots}}
	r.at.replica.slots = slots
	return r
}

// NewRamps are those of n processes that ask the same server, each with so many slots. They agree when Agree is called.
func NewRamps(n, slots int) []*Ramp {
	board := &agreement{}
	ramps := make([]*Ramp, n)
	for i := range ramps {
		ramps[i] = NewRamp(slots)
		ramps[i].board, ramps[i].at.share = board, &share{name: fmt.Sprintf("%06d", i)}
	}
	return ramps
}

// Agree agrees with the other ramps where it is time for that. waiting are the requests that wait for a place.
func (r *Ramp) Agree(now time.Time, waiting int) {
	if r.board == nil || !r.at.share.due(r.at.replica, waiting, now) {
		return
	}
	w := r.at.say(*r.board, r.at.slots, waiting, now)
	*r.board = w.text
	r.at.said(w)
}

// Enter takes a place at the server, if it may be asked now.
func (r *Ramp) Enter(now time.Time) bool {
	if !r.at.ready(now, r.at.slots) {
		return false
	}
	r.at.inFlight++
	return true
}

// Answered gives the place of a request back that came to a turn.
func (r *Ramp) Answered(now time.Time) {
	r.at.settle(now, r.at.setbacks, r.at.slots, answered, nil)
}

// errGone is the failure of a server that is not there.
var errGone = &inference.Failure{Class: events.ClassEndpoint, Away: true, Err: errors.New("the server has gone")}

// Broke gives the place of a request back whose server has gone; since is what Setbacks was when it began.
func (r *Ramp) Broke(now time.Time, since int) {
	r.at.settle(now, since, r.at.slots, away, errGone)
}

// Setbacks counts how often the ramp went down.
func (r *Ramp) Setbacks() int { return r.at.setbacks }

// Next is the next moment at which there may be a place though no request ends; zero when there is none.
func (r *Ramp) Next(now time.Time) time.Time { return nextAt([]target{r.at}, now) }

// Server is what one process knows of the server's capacity, beside what the server itself says.
func (r *Ramp) Server(url string) Server {
	return Server{URL: url, Slots: int(r.at.top(r.at.slots)), Allowed: int(r.at.allowed), Limited: finite(r.at.threshold) > 0}
}
