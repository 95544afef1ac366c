package querysampler

import (
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
)

func submitted(l *decidertest.Log, names ...string) {
	for _, name := range names {
		l.Happen(events.QuerySubmittedType, name, events.QuerySubmitted{Instruction: "Help.", Task: "task-0"})
	}
}

func tasksOf(t *testing.T, facts []events.Event) (tasks []string) {
	for _, f := range facts {
		if f.Type == events.GroupOpenedType {
			tasks = append(tasks, decidertest.Data[events.GroupOpened](t, f).Task)
		}
	}
	return tasks
}

// Queries come before tasks, in the order of their coming, each once, and
// displace no task of the epoch.
func TestQueriesComeFirst(t *testing.T) {
	for _, restart := range []bool{false, true} {
		l := newLog(t, nil)
		d := NewDecider(testRun, config(nil))
		submitted(l, "q2", "q1") // before the run's opening is folded
		opened(l)
		if got, want := tasksOf(t, l.Settle()), []string{"q2", "q1", d.task(1), d.task(2)}; !slices.Equal(got, want) {
			t.Fatalf("opens %v, want %v", got, want)
		}
		submitted(l, "q9", "q5", "q7")
		if facts := l.Settle(); len(facts) != 0 {
			t.Errorf("beyond the capacity: %v", decidertest.Names(facts))
		}
		if restart {
			l = replayed(t, l, config(nil))
		}
		ready(l, "trainer", 1, groupIDs(1, 2)...)
		published(l, testRun, 1, 1)
		if got, want := tasksOf(t, l.Settle()), []string{"q9", "q5"}; !slices.Equal(got, want) {
			t.Errorf("opens %v, want %v", got, want)
		}
		ready(l, "trainer", 2, groupIDs(3, 4)...)
		published(l, testRun, 2, 2)
		if got, want := tasksOf(t, l.Settle()), []string{"q7", d.task(3)}; !slices.Equal(got, want) {
			t.Errorf("opens %v, want %v", got, want)
		}
		for _, prefix := range []string{queries, queryAt} {
			if n := countKeys(t, l, prefix); n != 0 {
				t.Errorf("%d entries of %s are left", n, prefix)
			}
		}
	}
}

// Queries are taken up in external runs, not in paused or closed ones.
func TestQueriesOfSpecialRuns(t *testing.T) {
	l := newLog(t, func(c *runfile.RunConfig) { c.External = true })
	opened(l)
	submitted(l, "q1")
	if got := tasksOf(t, l.Settle()); !slices.Equal(got, []string{"q1"}) {
		t.Errorf("an external run opens %v", got)
	}
	l.Happen(events.RunPausedType, testRun, events.RunPaused{})
	submitted(l, "q2")
	if got := tasksOf(t, l.Settle()); len(got) != 0 {
		t.Errorf("a paused run opens %v", got)
	}
	l.Happen(events.RunResumedType, testRun, events.RunResumed{})
	if got := tasksOf(t, l.Settle()); !slices.Equal(got, []string{"q2"}) {
		t.Errorf("a resumed run opens %v", got)
	}
	l.Happen(events.RunClosedType, testRun, events.RunClosed{})
	submitted(l, "q3")
	if got := tasksOf(t, l.Settle()); len(got) != 0 {
		t.Errorf("a closed run opens %v", got)
	}
}

// A run that has all the groups that it needs still answers.
func TestQueriesBeyondTheSteps(t *testing.T) {
	l := newLog(t, func(c *runfile.RunConfig) { c.Steps, c.Staleness.Max = 1, 5 })
	opened(l)
	if got := openedGroups(l.Settle()); !slices.Equal(got, groupIDs(1, 2)) {
		t.Fatalf("one step opens %v", got)
	}
	submitted(l, "q1")
	if got := tasksOf(t, l.Settle()); !slices.Equal(got, []string{"q1"}) {
		t.Errorf("opens %v", got)
	}
}
