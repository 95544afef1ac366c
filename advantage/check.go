package advantage

import (
	"fmt"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// Check refuses an estimator that cannot be made, and one that gives every rollout of the run the
// advantage 0: it compares the members of a group, and each group of the run has one of each role.
// A trainer would take step after step on nothing. Where a filter drops groups of one, groups of
// forks remain, which have as many members as their order names. Outsiders make groups of other
// sizes, and a feed with teachers, hints or demonstrations has something else to train on.
func Check(c runfile.RunConfig) error {
	e, err := New(c.Advantage.Estimator, c.Advantage.Params)
	if err != nil {
		return err
	}
	learns := slices.ContainsFunc(c.Feeds, func(f runfile.Feed) bool { return !f.Awaits() && !f.Export() })
	alone := c.GroupSize / max(1, len(events.RolesIn(c, "")))
	if !learns || alone != 1 || c.External || c.Epochs > 0 || c.Advantage.SpanWeight != 0 {
		return nil
	}
	if advantages, _ := e.Group([]float64{1}, 0); advantages[0] != 0 {
		return nil
	}
	forks := func(f runfile.Feed) bool { return c.FiltersOf(f).ZeroVariance || c.FiltersOf(f).MinSurvivors > 1 }
	if !slices.ContainsFunc(c.Feeds, func(f runfile.Feed) bool { return !f.Awaits() && !f.Export() && !forks(f) }) {
		return nil // groups of one are dropped by name; those of forks are trained on
	}
	return fmt.Errorf("group_size %d: advantage.estimator %s compares rollouts of one group, and each would be alone in its own, with the advantage 0: set a larger group_size, "+
		"an estimator that compares over groups, such as reinforce_plus_plus or rae, or filters.zero_variance, so that groups of forks are trained on alone",
		c.GroupSize, c.Advantage.Estimator)
}
