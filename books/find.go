package books

import (
	"iter"
	"slices"
)

// Find is what is known of one rollout; ok is false for one that was never started.
func (s *Rollouts) Find(id string) (r Rollout, ok bool) {
	if found := s.rollouts[id]; found != nil {
		return *found, true
	}
	return r, false
}

// FindGroup is what is known of one group; ok is false for one that was never opened.
func (s *Rollouts) FindGroup(id string) (g Group, ok bool) {
	if found := s.groups[id]; found != nil {
		return *found, true
	}
	return g, false
}

// All yields the rollouts in the order of their starts.
func (s *Rollouts) All() iter.Seq[Rollout] {
	return func(yield func(Rollout) bool) {
		for _, r := range s.order {
			if r.ID != "" && !yield(*r) {
				return
			}
		}
	}
}

// RolloutAt is the rollout at a place in the order of the starts, from 0.
func (s *Rollouts) RolloutAt(place int) Rollout {
	s.close(0)
	return *s.order[place]
}

// GroupsOf lists the groups at places from one to before another, in the order of the openings,
// from 0.
func (s *Rollouts) GroupsOf(from, to int) (list []Group) {
	s.closeGroups(0)
	for _, g := range s.groupOrder[from:to] {
		list = append(list, *g)
	}
	return list
}

// Count is how many rollouts are held.
func (s *Rollouts) Count() int { return len(s.rollouts) }

// GroupCount is how many groups are held.
func (s *Rollouts) GroupCount() int { return len(s.groupOrder) - s.groupHoles }

// Size is how many rollouts and groups are held: what the memory grows with.
func (s *Rollouts) Size() int { return len(s.rollouts) + len(s.groups) }

// Forget lets go of rollouts. What still happens to them is not folded. They leave holes in the
// order until half of it are holes: to forget a rollout costs no walk over those that are held.
func (s *Rollouts) Forget(rollouts ...string) {
	for _, id := range rollouts {
		if r := s.rollouts[id]; r != nil {
			delete(s.rollouts, id)
			*r = Rollout{}
		}
	}
	s.close(len(s.order) / 2)
}

// ForgetGroup lets go of a group and of its rollouts.
func (s *Rollouts) ForgetGroup(id string) {
	if g := s.groups[id]; g != nil {
		s.Forget(g.Members...)
		delete(s.groups, id)
		if g.opened {
			s.groupHoles++
		}
		*g = Group{}
		s.closeGroups(len(s.groupOrder) / 2)
	}
}

// close closes the holes in the order of the rollouts if there are more than so many.
func (s *Rollouts) close(most int) {
	if len(s.order)-len(s.rollouts) > most {
		s.order = slices.DeleteFunc(s.order, func(r *Rollout) bool { return r.ID == "" })
	}
}

// closeGroups closes the holes in the order of the groups if there are more than so many.
func (s *Rollouts) closeGroups(most int) {
	if s.groupHoles > most {
		s.groupOrder = slices.DeleteFunc(s.groupOrder, func(g *Group) bool { return g.ID == "" })
		s.groupHoles = 0
	}
}
