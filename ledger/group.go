package ledger

import (
	"iter"

	"github.com/rondo-rl/rondo/events"
)

// Group is what the books know of one group, whatever the feed.
type Group struct {
	ID, Task      string
	Size          int
	PolicyVersion int64 // in the run when the group was opened
	// Completed: all its rollouts have an outcome. Mean is over the rewards of those that are scored then.
	Completed bool
	Estimator string
	Mean      float64
	Members   []string // rollouts, in the order of their starts
}

// opened folds the opening of a group.
func (l *Ledger) opened(e events.Event) error {
	opened, err := events.Data[events.GroupOpened](e)
	l.Groups++
	if l.groups[e.Entity] == nil {
		l.groups[e.Entity] = &Group{ID: e.Entity, Task: opened.Task, Size: opened.Size, PolicyVersion: opened.PolicyVersion}
		l.groupOrder = append(l.groupOrder, e.Entity)
	}
	return err
}

// group finds a group; one that was never opened has no entry in the books.
func (l *Ledger) group(id string) *Group {
	if g := l.groups[id]; g != nil {
		return g
	}
	return &Group{}
}

// FindGroup is what the books know of one group; ok is false for one that was never opened.
func (l *Ledger) FindGroup(id string) (g Group, ok bool) {
	if found := l.groups[id]; found != nil {
		return *found, true
	}
	return g, false
}

// AllGroups yields the groups in the order of their openings.
func (l *Ledger) AllGroups() iter.Seq[Group] {
	return func(yield func(Group) bool) {
		for _, id := range l.groupOrder {
			if !yield(*l.groups[id]) {
				return
			}
		}
	}
}

// GroupsOf lists the groups at places from one to before another, in the order of the openings, from 0.
func (l *Ledger) GroupsOf(from, to int) (list []Group) {
	for _, id := range l.groupOrder[from:to] {
		list = append(list, *l.groups[id])
	}
	return list
}

// GroupCount is how many groups the books hold.
func (l *Ledger) GroupCount() int { return len(l.groupOrder) }

// Size is how many rollouts and groups the books hold: what their memory grows with.
func (l *Ledger) Size() int { return len(l.order) + len(l.groupOrder) }
