package fleet

import "time"

// Ramp is the pace at which a fleet asks one server, for callers with a clock of their own: a simulation of the fleet is held to the
// same rules as the fleet.
type Ramp struct{ at target }

// NewRamp is the ramp of a server that was never asked, and may have that many requests under way.
func NewRamp(slots int) *Ramp {
	return &Ramp{target{replica: newReplica("simulated"), slots: slots}}
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

// Next is the next moment at which there may be a place though no request ends; zero when there is none.
func (r *Ramp) Next(now time.Time) time.Time { return nextAt([]target{r.at}, now) }
