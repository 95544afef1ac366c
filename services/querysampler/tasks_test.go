package querysampler

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
)

func (d *Decider) task(n int64) string { return d.permuted(d.cfg.Tasks, n) }

// Each epoch tries every task once, in an order of its own.
func TestTasksWithoutReplacement(t *testing.T) {
	d := NewDecider(testRun, config(nil))
	count := int64(len(d.cfg.Tasks))
	orders := map[string]bool{}
	for epoch := range int64(20) {
		var order []string
		for i := range count {
			order = append(order, d.task(epoch*count+i+1))
		}
		orders[strings.Join(order, " ")] = true
		slices.Sort(order)
		if order = slices.Compact(order); int64(len(order)) != count {
			t.Errorf("epoch %d tries only %v", epoch, order)
		}
	}
	if len(orders) < 10 {
		t.Errorf("20 epochs have only %d orders", len(orders))
	}
	other := NewDecider(testRun, config(func(c *runfile.RunConfig) { c.Seed = 1 }))
	same := true
	for n := range 4 * count {
		same = same && d.task(n+1) == other.task(n+1)
		if again := NewDecider(testRun, config(nil)); again.task(n+1) != d.task(n+1) {
			t.Errorf("group %d: the same seed draws another task", n+1)
		}
	}
	if same {
		t.Error("two seeds draw the same tasks")
	}
}

// Uniform: over many seeds each task comes first about equally often.
func TestTasksAreUniform(t *testing.T) {
	first := map[string]int{}
	const draws = 5000
	for seed := range int64(draws) {
		first[NewDecider(testRun, config(func(c *runfile.RunConfig) { c.Seed = seed })).task(1)]++
	}
	// Chi-squared with 4 degrees of freedom is below 18.5 in 999 of 1000
	// cases; the seeds are fixed.
	var chi float64
	for _, n := range first {
		d := float64(n) - draws/5
		chi += d * d / (draws / 5)
	}
	if chi > 18.5 || len(first) != 5 {
		t.Errorf("first draws %v, chi-squared %.1f", first, chi)
	}
}

// misfitting ends the rollouts of a group before their first turn, as far as they are
// named, and drops the group.
func misfitting(l *decidertest.Log, group, task string, members ...int) {
	for _, i := range members {
		l.Happen(events.RolloutFinishedType, events.RolloutID(group, i),
			events.RolloutFinished{StopReason: events.StopContext, TextOnly: true})
	}
	c := events.GroupCompleted{Task: task}
	for i := range 2 {
		l.Happen(events.RolloutScoredType, events.RolloutID(group, i), events.RolloutScored{TextOnly: true})
		c.Members = append(c.Members, events.Member{Rollout: events.RolloutID(group, i)})
	}
	l.Happen(events.GroupCompletedType, group, c)
	l.Happen(events.GroupDroppedType, group, events.GroupDropped{Feed: "trainer", Reason: events.DropFiltered,
		Filter: "untrainable"})
}

// TestMisfits: a task that does not fit into the server's context is not drawn again. Where none
// fits the run pauses, once; resumed, it tries all again.
func TestMisfits(t *testing.T) {
	for name, change := range map[string]func(*runfile.RunConfig){
		"permuted": nil, "curriculum": func(c *runfile.RunConfig) { c.Curriculum = &runfile.Curriculum{} },
		"no breaker": noBreaker,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLog(t, change)
			opened(l)
			waiting, misfit := map[string]string{}, map[string]bool{}
			var paused events.RunPaused
			settle := func() {
				for _, f := range l.Settle() {
					switch f.Type {
					case events.GroupOpenedType:
						waiting[f.Entity] = decidertest.Data[events.GroupOpened](t, f).Task
						if misfit[waiting[f.Entity]] {
							t.Errorf("group %s tries task %s again", f.Entity, waiting[f.Entity])
						}
					case events.RunPausedType:
						paused = decidertest.Data[events.RunPaused](t, f)
					}
				}
			}
			settle()
			groups := 0
			for ; len(waiting) > 0 && groups < 1000; groups++ {
				id := slices.Sorted(maps.Keys(waiting))[0]
				task := waiting[id]
				delete(waiting, id)
				misfitting(l, id, task, 0, 1)
				misfit[task] = true
				settle()
			}
			if len(misfit) != 5 || len(waiting) > 0 || paused.Class != events.PauseMisfit ||
				!strings.Contains(paused.Reason, "no task of the run fits") {
				t.Fatalf("after %d groups of %d tasks: %+v", groups, len(misfit), paused)
			}
			clear(misfit)
			l.Happen(events.RunResumedType, testRun, events.RunResumed{})
			if settle(); len(waiting) != 4 {
				t.Errorf("resumed it opens %v", waiting)
			}
		})
	}
}

// TestMisfitOfSome: one server of several with a longer context is enough for a task to stay.
func TestMisfitOfSome(t *testing.T) {
	l := newLog(t, nil)
	opened(l)
	l.Settle()
	misfitting(l, "g000001", NewDecider(testRun, config(nil)).task(1), 0)
	seen := map[string]bool{}
	for n := int64(2); n < 20; n++ {
		for _, f := range l.Settle() {
			if f.Type == events.GroupOpenedType {
				seen[decidertest.Data[events.GroupOpened](t, f).Task] = true
			}
		}
		completed(l, events.GroupID(n), true, true)
	}
	if !seen[NewDecider(testRun, config(nil)).task(1)] {
		t.Errorf("only %v are tried", seen)
	}
}
