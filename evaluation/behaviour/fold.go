// Package behaviour says how the agents of a run behave, version by version of their policy: how
// long they work, how much they think, how they call tools, why they stop, and what comes of it. It
// is a fold of the run's events, which keeps sums and counts, and of single rollouts those under
// way.
package behaviour

import (
	"maps"
	"slices"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/events"
)

// Fold folds a run's events into rows by the version of the policy at which rollouts were
// dispatched.
type Fold struct {
	rollouts *Tracker
	versions map[int64]*Tally
}

// New makes an empty fold beside the books of a run, which fold each event before it.
func New(run *books.Rollouts) *Fold {
	return &Fold{rollouts: NewTracker(run), versions: map[int64]*Tally{}}
}

// Apply folds the next event of the run's stream.
func (f *Fold) Apply(e events.Event) error {
	before := len(f.rollouts.open)
	over, err := f.rollouts.Apply(e)
	if err != nil {
		return err
	}
	if len(f.rollouts.open) > before {
		version := f.rollouts.open[e.Entity].Version
		f.tally(version).Start(version)
	}
	if over != nil {
		f.tally(over.Version).Add(*over)
	}
	if e.Type == events.GroupCompletedType && f.rollouts.shaped() {
		f.completed(e.Entity)
	}
	return nil
}

// completed counts what shaping makes of the rewards of a group. A member that was withdrawn before
// its group was complete has none.
func (f *Fold) completed(group string) {
	g, _ := f.rollouts.run.FindGroup(group)
	for _, id := range g.Members {
		if r, _ := f.rollouts.run.Find(id); r.Scored && r.Compared() {
			f.tally(r.PolicyVersion).penalty.add(r.Member.Shaped - r.Member.Reward)
		}
	}
}

// FailedCalls is how many calls of a rollout have failed that is under way.
func (f *Fold) FailedCalls(rollout string) int64 {
	if r := f.rollouts.open[rollout]; r != nil {
		return r.FailedCalls
	}
	return 0
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

// RowsOf are at most so many rows: where there are more versions, each row has several that follow
// each other.
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
