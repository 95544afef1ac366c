package jetpubsub

import (
	"slices"
	"sync"
	"time"
)

// Slots bounds how many messages are in work at once, over all subscriptions that share it. A pull holds as
// many slots as it asks for messages, so never more messages are on their way than there are free slots.
//
// Subscriptions with a backlog are served by the party that they belong to, the one with the fewest slots first: who has
// much to do, or takes long, cannot keep the slots from others. What one party may have beside others is bounded, see room.
type Slots struct {
	mu       sync.Mutex
	total    int
	free     int
	inUse    map[string]int // by party
	standing map[string]*standing
	waiting  []*request // in the order of their coming
	resting  []*loan    // loans of pulls that wait for something to happen, the oldest first
}

// NewSlots makes n slots.
func NewSlots(n int) *Slots {
	return &Slots{total: n, free: n, inUse: map[string]int{}, standing: map[string]*standing{}}
}

// party is what one of those that share the slots sees of them.
type party struct {
	*Slots
	name string
}

func (s *Slots) party(name string) party { return party{s, name} }

// request is a puller's wish for slots.
type request struct {
	party   string
	want    int
	hot     bool // it knows that messages wait for it
	granted chan *loan
}

// loan is a number of slots on loan to one pull.
type loan struct {
	n     int
	party string
	// patience is how long the pull may wait for its first message; 0: it takes what is there.
	patience time.Duration
	// recall tells a resting pull that another one needs its slots.
	recall   chan struct{}
	recalled bool
}

func (l *loan) wasRecalled() bool {
	select {
	case <-l.recall:
		return true
	default:
		return false
	}
}

// How long a pull may rest on its slots.
const (
	// patience of a pull whose slots nobody else needs; it bounds the harm of a request that got lost.
	patience = 30 * time.Second
	// turn of a pull when there are more quiet subscriptions than slots.
	turn = 25 * time.Millisecond
)

// ask asks for slots: as many as wanted when they are free, at least one. The loan comes when there are any.
func (s party) ask(want int, hot bool) *request {
	r := &request{party: s.name, want: want, hot: hot, granted: make(chan *loan, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, r)
	s.grant()
	return r
}

// loan is where the request's slots come; never, without a request.
func (r *request) loan() <-chan *loan {
	if r == nil {
		return nil
	}
	return r.granted
}

// forget takes a request back.
func (s *Slots) forget(r *request) {
	s.mu.Lock()
	s.waiting = slices.DeleteFunc(s.waiting, func(other *request) bool { return other == r })
	s.mu.Unlock()
	select {
	case l := <-r.granted: // at the last moment
		s.end(l, l.n)
	default:
	}
}

// end ends a pull and gives back the slots that no message came for.
func (s *Slots) end(l *loan, unused int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resting = slices.DeleteFunc(s.resting, func(other *loan) bool { return other == l })
	s.giveBack(l.party, unused)
}

// release gives back the slot of a message that says nothing of its party.
func (s party) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveBack(s.name, 1)
}

// giveBack takes slots back. The caller holds mu.
func (s *Slots) giveBack(party string, n int) {
	s.free += n
	if s.inUse[party] -= n; s.inUse[party] == 0 {
		delete(s.inUse, party)
	}
	s.grant()
}

// grant hands free slots to those that wait, and calls back slots that pulls rest on when there are none.
func (s *Slots) grant() {
	for s.free > 0 {
		i := s.next()
		if i < 0 {
			break
		}
		r := s.waiting[i]
		s.waiting = slices.Delete(s.waiting, i, i+1)
		l := s.loanFor(r)
		s.free -= l.n
		s.inUse[r.party] += l.n
		if l.patience > 0 {
			s.resting = append(s.resting, l)
		}
		r.granted <- l
	}
	calls := 0
	for _, r := range s.waiting {
		if s.room(r.party) > 0 {
			calls++
		}
	}
	for _, l := range s.resting {
		if calls == 0 {
			return
		}
		if calls--; !l.recalled {
			l.recalled = true
			close(l.recall)
		}
	}
}

// next finds the request to serve among those whose parties may have more: the first one, or, where that knows of a backlog, the
// first of the party with a backlog that has the fewest slots. A quiet subscription waits for its turn: it may have nothing to do.
// It is -1 when there is none.
func (s *Slots) next() int {
	first, best := -1, -1
	for i, r := range s.waiting {
		switch {
		case s.room(r.party) <= 0:
		case first < 0:
			first, best = i, i
		case s.waiting[first].hot && r.hot && s.inUse[r.party] < s.inUse[s.waiting[best].party]:
			best = i
		}
	}
	return best
}

// loanFor sizes a loan. Parties with a backlog share what is free, and each one's subscriptions share that; a quiet
// subscription gets a slot to look, and may rest on it while nobody needs it.
func (s *Slots) loanFor(r *request) *loan {
	hot := map[string]int{}
	for _, other := range s.waiting {
		if other.hot && s.room(other.party) > 0 {
			hot[other.party]++
		}
	}
	l := &loan{n: 1, party: r.party, recall: make(chan struct{})}
	switch {
	case r.hot:
		hot[r.party]++
		l.n = min(r.want, s.room(r.party), max(1, s.free/(len(hot)*hot[r.party])))
	case len(hot) > 0:
	case s.free > len(s.waiting):
		l.patience = patience
	default:
		l.patience = turn
	}
	return l
}
