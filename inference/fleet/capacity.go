package fleet

import (
	"math"
	"time"

	"github.com/rondo-rl/rondo/inference"
)

// Server is what is known of how much a server of a run can do.
type Server struct {
	URL string // as in the run's configuration
	// Load is what the server says; nil where it does not.
	Load *inference.Load
	// Stale is set where it was said at an earlier look, and the latest one failed.
	Stale bool
	// Slots are those that all generators have for it together. Allowed is what its ramp allows,
	// and Limited is set where it has gone down once.
	Slots, Allowed int
	Limited        bool
}

// Capacity estimates how many turns each of a run's servers can sample at once.
//
// A server in which requests wait, or whose memory is nearly full, can do what it runs. While
// nothing waits it may do more: the estimate grows by a tenth with each look, as far as it is
// used, up to the generators' slots; past a number at which requests have waited only after a
// while. Of a server that says nothing it is what its ramp has learnt where it has told us to
// wait, or else the slots.
type Capacity struct {
	servers map[string]*estimate
}

type estimate struct {
	turns  float64
	waited float64   // at which requests waited last; 0: they never did
	until  time.Time // it is not passed before
}

const (
	// nearlyFull is the part of the memory for keys and values at which a server takes nothing
	// more: beyond it engines put sequences off that are under way.
	nearlyFull = 0.95
	// used is the part of an estimate that must run before it grows.
	used = 0.9
	// grows is how much it grows with a look.
	grows = 1.1
	// passAgain is how long it stays below a number at which requests have waited.
	passAgain = 5 * time.Minute
	// maxTurns bounds a sum of estimates.
	maxTurns = 100000
)

// Look takes in how the servers are at a time, and gives how many turns each can sample at once.
func (c *Capacity) Look(now time.Time, servers []Server) []int {
	known := map[string]*estimate{}
	turns := make([]int, len(servers))
	for i, s := range servers {
		e := c.servers[s.URL]
		if e == nil {
			e = &estimate{turns: float64(s.Slots)}
		}
		known[s.URL] = e
		e.look(now, s)
		turns[i] = min(max(1, int(math.Round(e.turns))), maxTurns)
	}
	c.servers = known
	return turns
}

func (e *estimate) look(now time.Time, s Server) {
	most := float64(max(1, s.Slots))
	switch l := s.Load; {
	case l == nil && s.Limited:
		e.turns = float64(s.Allowed)
	case l == nil:
		e.turns = most
	case s.Stale: // nothing new
	case l.Waiting > 0 || l.KVUsage >= nearlyFull:
		runs := float64(max(1, l.Running))
		e.turns = max(runs, (e.turns+runs)/2) // one look alone may have met it at the end of a long prompt
		e.waited, e.until = e.turns, now.Add(passAgain)
	case float64(l.Running) >= used*e.turns:
		e.turns *= grows
		if e.waited > 0 && now.Before(e.until) {
			e.turns = min(e.turns, max(e.waited, e.turns/grows))
		}
	}
	e.turns = max(1, min(e.turns, most))
}
