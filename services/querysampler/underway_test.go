package querysampler

import (
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// TestRolloutsUnderWayAreBounded: in_flight bounds a training run, too. The place of a rollout is
// free when it has its outcome, not when its group has.
func TestRolloutsUnderWayAreBounded(t *testing.T) {
	l := newLog(t, func(c *runfile.RunConfig) { c.Staleness.Max, c.InFlight = 8, 5 })
	opened(l)
	if got := openedGroups(l.Settle()); !slices.Equal(got, groupIDs(1, 2)) {
		t.Fatalf("with 5 rollouts at once, groups of 2 are opened: %v", got)
	}
	scored := func(group int64, member int) {
		t.Helper()
		id := events.RolloutID(events.GroupID(group), member)
		l.Happen(events.RolloutFinishedType, id, events.RolloutFinished{StopReason: events.StopFinished})
		l.Happen(events.RolloutScoredType, id, events.RolloutScored{})
	}
	scored(1, 0)
	if got := openedGroups(l.Settle()); !slices.Equal(got, groupIDs(3, 3)) {
		t.Errorf("when 3 are under way, opened: %v", got)
	}
	scored(1, 1)
	if got := openedGroups(l.Settle()); len(got) > 0 {
		t.Errorf("when 4 are under way, opened: %v", got)
	}
	scored(2, 1)
	if got := openedGroups(l.Settle()); !slices.Equal(got, groupIDs(4, 4)) {
		t.Errorf("when two groups wait for one rollout each, opened: %v", got)
	}
}

// TestOneGroupIsAlwaysUnderWay: a group that is larger than the bound is opened alone.
func TestOneGroupIsAlwaysUnderWay(t *testing.T) {
	l := newLog(t, func(c *runfile.RunConfig) { c.InFlight = 1 })
	opened(l)
	if got := openedGroups(l.Settle()); !slices.Equal(got, groupIDs(1, 1)) {
		t.Errorf("opened: %v", got)
	}
}
