package querysampler

import (
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
	"github.com/rondo-rl/rondo/storage/projection"
)

// capable states how many turns the servers can sample at once.
func capable(l *decidertest.Log, turns int) {
	l.Happen(events.CapacityMeasuredType, "small", events.CapacityMeasured{Turns: turns})
}

func automatic(c *runfile.RunConfig) { c.Staleness.Max, c.InFlight = 60, runfile.AutoInFlight }

// TestOpenGroupsFollowCapacity: rollouts that wait for turns are as many as the servers can sample
// at once. Those at their tools, and those that are scored, take nothing of it.
func TestOpenGroupsFollowCapacity(t *testing.T) {
	l := newLog(t, automatic)
	opened(l)
	capable(l, 5)
	expect := func(when string, from, to int64) {
		t.Helper()
		if got := openedGroups(l.Settle()); !slices.Equal(got, groupIDs(from, to)) {
			t.Errorf("%s, opened: %v, want groups %d to %d", when, got, from, to)
		}
	}
	expect("with a capacity of 5 and groups of 2", 1, 3)
	turn := func(group int64, member int, number int) {
		l.Happen(events.TurnSampledType, events.RolloutID(events.GroupID(group), member),
			events.TurnSampled{Turn: number})
	}
	turn(1, 0, 0)
	expect("when 5 wait and one is at its tools", 4, 3)
	turn(1, 1, 0)
	expect("when 4 wait", 4, 4)
	l.Happen(events.ToolsCompletedType, "g000001-0", events.ToolsCompleted{})
	l.Happen(events.ToolsCompletedType, "g000001-1", events.ToolsCompleted{})
	turn(2, 0, 0)
	turn(2, 1, 0)
	turn(3, 0, 0)
	expect("when three tools have run, and others begin", 4, 3)
	l.Happen(events.RolloutFinishedType, "g000003-1", events.RolloutFinished{StopReason: events.StopFinished})
	expect("when one more is scored", 5, 5)
	capable(l, 9)
	expect("when the servers can do 9", 6, 7)
	capable(l, 1)
	for _, id := range []string{"g000001-0", "g000001-1"} {
		l.Happen(events.RolloutFailedType, id, events.RolloutFailed{Class: events.ClassInternal})
	}
	expect("when they can do 1", 8, 7)
}

// TestScarceToolsBoundOpenGroups: while all rollouts are at their tools no group begins beyond four
// rollouts for each turn that the servers can sample at once.
func TestScarceToolsBoundOpenGroups(t *testing.T) {
	l := newLog(t, automatic)
	opened(l)
	capable(l, 2)
	seen := 0
	for groups := openedGroups(l.Settle()); len(groups) > 0; groups = openedGroups(l.Settle()) {
		seen += len(groups)
		for _, g := range groups {
			for member := range 2 {
				l.Happen(events.TurnSampledType, events.RolloutID(g, member), events.TurnSampled{})
			}
		}
	}
	if seen*2 != underWayPerTurn*2 {
		t.Errorf("%d groups of 2 are under way with a capacity of 2 turns", seen)
	}
	l.Happen(events.RolloutFailedType, events.RolloutID(events.GroupID(1), 0),
		events.RolloutFailed{Class: events.ClassInternal})
	if groups := openedGroups(l.Settle()); len(groups) != 1 {
		t.Errorf("when one has ended, opened: %v", groups)
	}
}

// TestPeopleHoldUpNobody: rollouts that wait for a person's reward count only as
// long as they ask for turns.
func TestPeopleHoldUpNobody(t *testing.T) {
	l := newLog(t, func(c *runfile.RunConfig) {
		automatic(c)
		c.Features = []string{runfile.FeatureFeedbackRewards}
	})
	opened(l)
	capable(l, 2)
	for n := range 2 * underWayPerTurn {
		groups := openedGroups(l.Settle())
		if len(groups) != 1 {
			t.Fatalf("after %d groups, opened: %v", n, groups)
		}
		for member := range 2 {
			l.Happen(events.TurnSampledType, events.RolloutID(groups[0], member), events.TurnSampled{})
			l.Happen(events.RolloutFinishedType, events.RolloutID(groups[0], member),
				events.RolloutFinished{StopReason: events.StopFinished})
		}
	}
}

// TestCapacityUnknown: until the first statement the run begins with what one generator asks by
// default, and one without "auto" hears of no capacity.
func TestCapacityUnknown(t *testing.T) {
	l := newLog(t, automatic)
	opened(l)
	if got := openedGroups(l.Settle()); len(got) != capacityUnknown/2 {
		t.Errorf("%d groups of 2 are opened", len(got))
	}
	l = newLog(t, func(c *runfile.RunConfig) { c.Staleness.Max, c.InFlight = 60, 6 })
	opened(l)
	capable(l, 100)
	if got := openedGroups(l.Settle()); len(got) != 3 {
		t.Errorf("with in_flight 6, %d groups of 2 are opened", len(got))
	}
}

// TestEvaluationFollowsCapacity: an evaluation may follow it, too, and
// every task is tried as often.
func TestEvaluationFollowsCapacity(t *testing.T) {
	l := newEvaluation(t, func(c *runfile.RunConfig) { c.Epochs, c.InFlight = 3, runfile.AutoInFlight })
	opened(l)
	capable(l, 3)
	if got := openedGroups(l.Settle()); len(got) != 2 {
		t.Errorf("opened: %v", got)
	}
	capable(l, 1000)
	if all := len(openedGroups(l.Settle())); int64(all+2) != NewDecider(testRun,
		evaluation(func(c *runfile.RunConfig) { c.Epochs = 3 })).groupsToTry() {
		t.Errorf("then %d more are opened", all)
	}
}

// TestAskingIsCounted: however rollouts go on and end, what is counted are those
// that the generators have.
func TestAskingIsCounted(t *testing.T) {
	l := newLog(t, automatic)
	opened(l)
	capable(l, 20)
	l.Settle()
	check := func(when string) {
		t.Helper()
		s, _, err := projection.Get[state](l.View(), stateKey)
		if err != nil {
			t.Fatal(err)
		}
		asking := 0
		for r, err := range projection.Scan[inFlight](l.View(), flying) {
			if err != nil {
				t.Fatal(err)
			}
			if r.Stage == events.StageGenerator {
				asking++
			}
		}
		if s.Asking != asking {
			t.Errorf("%s, %d are counted and %d wait for turns", when, s.Asking, asking)
		}
	}
	check("at first")
	for i := range int64(8) {
		id := events.RolloutID(events.GroupID(i+1), 0)
		for n, happens := range []func(){
			func() { l.Happen(events.TurnSampledType, id, events.TurnSampled{}) },
			func() { l.Happen(events.ToolsCompletedType, id, events.ToolsCompleted{}) },
			func() { l.Happen(events.RolloutRetriedType, id, events.RolloutRetried{Stage: events.StageGenerator}) },
			func() { l.Happen(events.TurnSampledType, id, events.TurnSampled{Turn: 1}) },
			func() {
				l.Happen(events.RolloutFinishedType, id, events.RolloutFinished{StopReason: events.StopFinished})
			},
			func() { l.Happen(events.RolloutScoredType, id, events.RolloutScored{}) },
		} {
			if int64(n) >= i && i < 6 {
				break
			}
			happens()
			check("on the way of " + id)
		}
		if i < 7 {
			l.Happen(events.RolloutFailedType, id, events.RolloutFailed{Class: events.ClassInternal})
			check("behind the failure of " + id)
		}
	}
}
