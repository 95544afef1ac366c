package querysampler

import (
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
	"github.com/rondo-rl/rondo/storage/projection"
)

// TestContinues: a run that continues another one draws on where that one stopped, by what it has
// learnt, with other seeds, and hands all of it on.
func TestContinues(t *testing.T) {
	for name, change := range map[string]func(*runfile.RunConfig){
		"curriculum": func(c *runfile.RunConfig) { c.Curriculum, c.Seed = &runfile.Curriculum{}, 3 },
		"epochs":     func(c *runfile.RunConfig) { c.Seed = 3 },
	} {
		t.Run(name, func(t *testing.T) {
			old := newLog(t, change)
			opened(old)
			published(old, testRun, 7, 0)
			before := old.Settle()
			for i, task := range []string{"task-0", "task-1", "task-2"} {
				reward := float64(i) / 2
				old.Happen(events.GroupCompletedType, events.GroupID(int64(i+1)),
					events.GroupCompleted{Task: task, Members: []events.Member{{Reward: 1}, {Reward: reward}}})
			}
			d := NewDecider(testRun, config(change))
			var learnt events.Continued
			learnt.Tasks = map[string]events.TaskLearnt{}
			if err := d.Learnt(old.View(), &learnt); err != nil {
				t.Fatal(err)
			}
			learnt.Tasks["task-3"] = events.TaskLearnt{Misfit: true}
			draw, err := d.drawer(old.View())
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // and once more, from the run that continues
				next := newLog(t, change)
				next.Happen(events.RunOpenedType, testRun, events.RunOpened{Continues: &learnt})
				facts := next.Settle()
				first, _, err := projection.Get[state](next.View(), stateKey)
				if err != nil || first.PolicyVersion != 7 || first.Misfits != 1 {
					t.Fatalf("it begins with %+v, %v", first, err)
				}
				if tasks := tasksOf(t, facts); len(tasks) != 4 || slices.Contains(tasks, "task-3") {
					t.Errorf("opens %v, want 4 tasks, and none that does not fit", tasks)
				}
				for _, f := range append(slices.Clone(before), facts...) {
					if f.Type == events.GroupOpenedType && f.Entity == "g000001" &&
						decidertest.Data[events.GroupOpened](t, f).PolicyVersion != 7 {
						t.Errorf("%s is opened at another version", f.ID)
					}
				}
				if seed(t, before) == seed(t, facts) {
					t.Error("the first rollouts of both runs have one seed")
				}
				learnt = events.Continued{Tasks: map[string]events.TaskLearnt{}}
				if err := d.Learnt(next.View(), &learnt); err != nil {
					t.Fatal(err)
				}
			}
			if learnt.Groups != 12 || learnt.Drawn != 12 || !learnt.Tasks["task-3"].Misfit ||
				name == "curriculum" && *learnt.Tasks["task-1"].PassRate != 0.5 {
				t.Errorf("it hands on %+v", learnt)
			}
			delete(learnt.Tasks, "task-3")
			learnt.Drawn = 4
			next := newLog(t, change)
			next.Happen(events.RunOpenedType, testRun, events.RunOpened{Continues: &learnt})
			if got, want := tasksOf(t, next.Settle()),
				[]string{draw(5), draw(6), draw(7), draw(8)}; !slices.Equal(got, want) {
				t.Errorf("opens %v, want what the old run would have opened: %v", got, want)
			}
		})
	}
}

// seed is that of the first rollout that facts start.
func seed(t *testing.T, facts []events.Event) int64 {
	t.Helper()
	at := slices.IndexFunc(facts, func(f events.Event) bool { return f.Type == events.RolloutStartedType })
	return decidertest.Data[events.RolloutStarted](t, facts[at]).Seed
}

// TestContinuedSeeds: a member that a sampler left out when it died has the
// seed that it would have had.
func TestContinuedSeeds(t *testing.T) {
	learnt := &events.Continued{Groups: 100, Drawn: 100}
	whole, half := newLog(t, nil), newLog(t, nil)
	for _, l := range []*decidertest.Log{whole, half} {
		l.Happen(events.RunOpenedType, testRun, events.RunOpened{Continues: learnt})
	}
	facts := whole.Settle()
	half.Happen(events.GroupOpenedType, "g000001", decidertest.Data[events.GroupOpened](t, facts[0]))
	if got, want := seed(t, half.Settle()), seed(t, facts); got != want || want != rolloutSeed(0, 101, 0) {
		t.Errorf("seed %d, want %d", got, want)
	}
}
