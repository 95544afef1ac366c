package health

import (
	"fmt"
	"sync"
	"time"
)

// failing are the deciders that cannot go on, by what they decide.
type failing struct {
	mu       sync.Mutex
	deciders map[string]stall
}

// decidesAgain is how long a decider must not have failed until it counts as one that can decide. One that cannot is begun again every half a minute.
const decidesAgain = 75 * time.Second

// CannotDecide notes that a decider of a run has stopped, and why.
func (m *Monitor) CannotDecide(decider, run string, err error) {
	if m == nil {
		return
	}
	f, of, now := &m.failing, decider+" of run "+run, time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.deciders == nil {
		f.deciders = map[string]stall{}
	}
	since := now
	if before, known := f.deciders[of]; known {
		since = before.since
	}
	f.deciders[of] = stall{since, now, err}
}

func (m *Monitor) lookAtDeciders() {
	f := &m.failing
	f.mu.Lock()
	var found []Outage
	for of, s := range f.deciders {
		if time.Since(s.last) > decidesAgain {
			delete(f.deciders, of)
		} else if s.last.Sub(s.since) >= stalledFor {
			found = append(found, Outage{Of: of, Since: s.since, Reason: fmt.Sprint(s.err)})
		}
	}
	f.mu.Unlock()
	m.outages.found(CannotDecide, found...)
}
