// Package behaviour says how the agents of a run behave, version by version of their policy: how long they work, how much they think, how they call
// tools, why they stop, and what comes of it. It is a fold of the run's events, which keeps sums and counts, and of single rollouts those under way.
package behaviour

import (
	"maps"
	"slices"

	"github.com/rondo-rl/rondo/events"
)

// Fold folds a run's events into rows by the version of the policy at which rollouts were dispatched.
type Fold struct {
	rollouts *Tracker
	versions map[int64]*Tally
	// waiting has the versions of scored rollouts whose group is not complete, of a run that shapes rewards.
	waiting map[string]int64
}

// New makes an empty fold.
func New() *Fold {
	return &Fold{rollouts: NewTracker(), versions: map[int64]*Tally{}, waiting: map[string]int64{}}
}

// Apply folds the next event of the run's stream.
func (f *Fold) Apply(e events.Event) error {
	known := f.rollouts.open[e.Entity] != nil
	over, err := f.rollouts.Apply(e)
	if err != nil {
		return err
	}
	switch e.Type {
	case events.RolloutStartedType:
		if version := f.rollouts.open[e.Entity].Version; !known {
			f.tally(version).Start(version)
		}
	case events.GroupCompletedType:
		err = f.completed(e)
	}
	if over != nil {
		f.tally(over.Version).Add(*over)
		if f.rollouts.shaped && !over.Failed {
			f.waiting[e.Entity] = over.Version
		}
	}
	return err
}

func (f *Fold) completed(e events.Event) error {
	if !f.rollouts.shaped {
		return nil
	}
	completed, err := events.Data[events.GroupCompleted](e)
	for _, m := range completed.Members {
		if version, scored := f.waiting[m.Rollout]; scored {
			if !m.Failed { // it was withdrawn before its group was complete
				f.tally(version).penalty.add(m.Shaped - m.Reward)
			}
			delete(f.waiting, m.Rollout)
		}
	}
	return err
}

func (f *Fold) tally(version int64) *Tally {
	t := f.versions[version]
	if t == nil {
		t = &Tally{}
		f.versions[version] = t
	}
	return t
}

// Rows are the versions in order.
func (f *Fold) Rows() []Row { return f.RowsOf(len(f.versions)) }

// RowsOf are at most so many rows: where there are more versions, each row has several that follow each other.
func (f *Fold) RowsOf(most int) []Row {
	versions, thoughts := slices.Sorted(maps.Keys(f.versions)), false
	for _, t := range f.versions {
		thoughts = thoughts || t.thinking > 0
	}
	each := max(1, (len(versions)+most-1)/max(1, most))
	rows := []Row{}
	for some := range slices.Chunk(versions, each) {
		var all Tally
		for _, version := range some {
			all.merge(f.versions[version])
		}
		rows = append(rows, all.row(thoughts))
	}
	return rows
}
