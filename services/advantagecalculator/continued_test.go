package advantagecalculator

import (
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
)

// TestContinuedBaselines: a task's first group in a run that continues another one is compared
// with what that one left.
func TestContinuedBaselines(t *testing.T) {
	cfg := runfile.RunConfig{Tasks: []runfile.TaskSpec{{Name: "hard"}, {Name: "new"}}}
	remembering(&cfg)
	d, err := NewDecider("r1", cfg)
	if err != nil {
		t.Fatal(err)
	}
	old := decidertest.New(t, "r1", d)
	ended(old, 1, "hard", 0, 1) // 0 → 0 → 0.5
	origin := events.Origin{Rollout: "g000001-0", Turn: 1}
	old.Happen(events.GroupOpenedType, "g000002", events.GroupOpened{Task: "new", Size: 1, Origin: &origin})
	scored(old, "g000002-0", 1)
	old.Settle()
	learnt := events.Continued{Tasks: map[string]events.TaskLearnt{}}
	if err := d.Learnt(old.View(), &learnt); err != nil || len(learnt.Tasks) != 1 ||
		*learnt.Tasks["hard"].Baseline != 0.5 {
		t.Fatalf("%+v, %v, want the baseline of hard: that of the fork stays", learnt, err)
	}
	next := decidertest.New(t, "r1", d)
	next.Happen(events.RunOpenedType, "r1", events.RunOpened{Continues: &learnt})
	ended(next, 1, "hard", 1, 1)
	ended(next, 2, "new", 1)
	got := advantagesOf(t, next.Settle())
	if !slices.Equal(got["g000001"], []float64{0.5, 0.25}) || !slices.Equal(got["g000002"], []float64{1}) {
		t.Errorf("%v, want hard compared with 0.5 and new with 0", got)
	}
}
