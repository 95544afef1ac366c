package jetpubsub

// A party that is alone may have all slots. As soon as there are others, what one has in work is bounded, as work may hang for as long as
// its handler lets it and nothing takes a slot back before: the others must find one that moment.

const (
	// untrustedShare is the part of the slots, one in so many, of a party of which nothing has come to a good end yet, or not the
	// last thing: a run whose inference server is away, or hangs.
	untrustedShare = 4
	// untrustedTogether is the part of all such parties.
	untrustedTogether = 2
	// keptShare is the part that nobody may have: who comes, comes to that at once.
	keptShare = 8
)

// standing is what is known of a party.
type standing struct {
	subscriptions int
	// trusted: the last of its messages that was settled had come to a good end.
	trusted bool
}

// join counts a subscription of the party.
func (s party) join() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.standing[s.name] == nil {
		s.standing[s.name] = &standing{}
	}
	s.standing[s.name].subscriptions++
}

// leave ends one; with the last one the party is forgotten.
func (s party) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.standing[s.name]; p != nil {
		if p.subscriptions--; p.subscriptions == 0 {
			delete(s.standing, s.name)
		}
	}
	s.grant() // the bounds of those that are left may have gone
}

// settled gives back the slot of a message, which came to a good end or not.
func (s party) settled(well bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.standing[s.name]; p != nil {
		p.trusted = well
	}
	s.giveBack(s.name, 1)
}

// inWork is how many slots a party has without those that its pulls rest on.
func (s *Slots) inWork(party string) int {
	n := s.inUse[party]
	for _, l := range s.resting {
		if l.party == party {
			n -= l.n
		}
	}
	return n
}

// room is how many more slots a party may have, whether they are free or not.
func (s *Slots) room(party string) int {
	if len(s.standing) < 2 {
		return s.total
	}
	used := s.inWork(party)
	if p := s.standing[party]; p != nil && p.trusted {
		return max(1, s.total-max(1, s.total/keptShare)) - used // the only slot goes from one to the other
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
