package health

import (
	"fmt"
	"sync"
	"time"
)

// parked are inputs that wait for the ends of outages, by the service that has them.
type parked struct {
	mu     sync.Mutex
	inputs map[string]map[*parkedInput]bool
}

type parkedInput struct {
	since time.Time
	err   error
}

// parkedFor is how long an input must wait until it is told of: most outages are
// shorter, and tried again once.
const parkedFor = 5 * time.Second

// Parked notes that an input of a service waits for the end of an outage, until done is called.
func (m *Monitor) Parked(service string, err error) (done func()) {
	if m == nil {
		return func() {}
	}
	p, input := &m.parked, &parkedInput{time.Now(), err}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inputs == nil {
		p.inputs = map[string]map[*parkedInput]bool{}
	}
	if p.inputs[service] == nil {
		p.inputs[service] = map[*parkedInput]bool{}
	}
	p.inputs[service][input] = true
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.inputs[service], input)
	}
}

func (m *Monitor) lookAtParked() {
	p := &m.parked
	p.mu.Lock()
	var found []Outage
	for service, inputs := range p.inputs {
		var longest *parkedInput
		for input := range inputs {
			if longest == nil || input.since.Before(longest.since) {
				longest = input
			}
		}
		if longest != nil && time.Since(longest.since) >= parkedFor {
			found = append(found, Outage{Of: service, Since: longest.since,
				Reason: fmt.Sprintf("%d inputs wait, the first one for: %v", len(inputs), longest.err)})
		}
	}
	p.mu.Unlock()
	m.outages.set(InputsParked, found...)
}
