package querysampler

import (
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
)

// Forks come behind queries and before tasks, each once; their members say where they begin, and no
// task of the epoch is displaced.
func TestForks(t *testing.T) {
	for _, restart := range []bool{false, true} {
		l := newLog(t, nil)
		d := NewDecider(testRun, config(nil))
		opened(l)
		l.Settle()
		twice := events.RolloutForked{Turn: 2, Count: 3, Task: "task-4"}
		l.Happen(events.RolloutForkedType, "g000001-0", twice)
		l.Happen(events.RolloutForkedType, "g000001-0", twice)
		l.Happen(events.RolloutForkedType, "g000001-1", events.RolloutForked{Turn: 0, Count: 1, Task: "task-4"})
		submitted(l, "q1")
		if facts := l.Settle(); len(facts) != 0 {
			t.Errorf("beyond the capacity: %v", decidertest.Names(facts))
		}
		if restart {
			l = replayed(t, l, config(nil))
		}
		var groups []events.GroupOpened
		started := map[events.Origin]int{}
		for step := range int64(3) {
			ready(l, "trainer", step+1, groupIDs(2*step+1, 2*step+2)...)
			published(l, testRun, step+1, step+1)
			for _, f := range l.Settle() {
				switch f.Type {
				case events.GroupOpenedType:
					groups = append(groups, decidertest.Data[events.GroupOpened](t, f))
				case events.RolloutStartedType:
					if o := decidertest.Data[events.RolloutStarted](t, f).Origin; o != nil {
						started[*o]++
					}
				}
			}
		}
		first, second := events.Origin{Rollout: "g000001-0", Turn: 2}, events.Origin{Rollout: "g000001-1", Turn: 0}
		want := []events.GroupOpened{
			{Task: "q1", Size: 2, PolicyVersion: 1}, {Task: "task-4", Size: 3, PolicyVersion: 1, Origin: &first},
			{Task: "task-4", Size: 3, PolicyVersion: 2, Origin: &first},
			{Task: "task-4", Size: 1, PolicyVersion: 2, Origin: &second},
			{Task: d.task(5), Size: 2, PolicyVersion: 3}, {Task: d.task(6), Size: 2, PolicyVersion: 3},
		}
		if len(groups) != len(want) || started[first] != 6 || started[second] != 1 {
			t.Fatalf("%d groups, forks %v", len(groups), started)
		}
		for i, g := range groups {
			same := (g.Origin == nil) == (want[i].Origin == nil) && (g.Origin == nil || *g.Origin == *want[i].Origin)
			if g.Task != want[i].Task || g.Size != want[i].Size || g.PolicyVersion != want[i].PolicyVersion || !same {
				t.Errorf("group %d is %+v, want %+v", i, g, want[i])
			}
		}
		if n := countKeys(t, l, forks); n != 0 {
			t.Errorf("%d forks are left", n)
		}
	}
}

// How many forks pass says nothing of their task, which they did not begin.
func TestForksLeaveTheCurriculumAlone(t *testing.T) {
	l := newLog(t, func(c *runfile.RunConfig) { c.Curriculum = &runfile.Curriculum{} })
	opened(l)
	for n, origin := range map[int64]*events.Origin{71: nil, 72: {Rollout: "g000001-0"}} {
		id := events.GroupID(n)
		l.Happen(events.GroupOpenedType, id, events.GroupOpened{Task: "task-" + id[6:], Size: 1, Origin: origin})
		l.Happen(events.GroupCompletedType, id, events.GroupCompleted{Task: "task-" + id[6:],
			Members: []events.Member{{Rollout: id + "-0", Reward: 1}}})
	}
	if n := countKeys(t, l, passRates); n != 1 {
		t.Errorf("%d pass rates instead of one", n)
	}
}
