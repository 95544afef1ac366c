package advantagecalculator

import (
	"math"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
)

func twoRoles(cfg *runfile.RunConfig) {
	cfg.Environment = &runfile.Environment{Name: "game", Roles: []string{"x", "o"}}
}

// TestRoles: A_i is the estimator's over the members of i's role. Rewards stand as x, o, x, o, …;
// the figures are those of the formulas over each role alone.
func TestRoles(t *testing.T) {
	for _, c := range []struct {
		name       string
		estimator  string
		rewards    []float64 // NaN: failed
		advantages []float64
	}{
		{"mean-centred", "mean_centred", []float64{1, -1, 0, 0, -1, 1}, []float64{1, -1, 0, 0, -1, 1}},
		{"what a role gets on average counts for nobody", "mean_centred", []float64{1, 0, 1, 0, 1, 0},
			[]float64{0, 0, 0, 0, 0, 0}},
		{"scales of their own", "std_normalised", []float64{1, 100, 0, 0},
			[]float64{.707106, .707106, -.707106, -.707106}},
		{"leave one out", "rloo", []float64{1, 0, 0, 3, 0, 3}, []float64{1, -3, -.5, 1.5, -.5, 1.5}},
		{"failed members", "mean_centred", []float64{1, none, 0, 7}, []float64{.5, none, -.5, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLog(t, func(cfg *runfile.RunConfig) { twoRoles(cfg); cfg.Advantage.Estimator = c.estimator })
			ended(l, 1, "task", c.rewards...)
			completed := decidertest.Data[events.GroupCompleted](t, l.Settle()[0])
			for i, m := range completed.Members {
				if m.Role != []string{"x", "o"}[i%2] || m.Failed != math.IsNaN(c.advantages[i]) ||
					!m.Failed && math.Abs(m.Advantage-c.advantages[i]) > 1e-5 {
					t.Errorf("member %d: %+v, want the advantage %g", i, m, c.advantages[i])
				}
			}
		})
	}
}

// TestBaselineOfARole: SPIRAL's r − b with b ← decay·b + (1 − decay)·r, for each task and role,
// also in the run that continues this one.
func TestBaselineOfARole(t *testing.T) {
	cfg := runfile.RunConfig{Tasks: []runfile.TaskSpec{{Name: "game"}}}
	remembering(&cfg)
	twoRoles(&cfg)
	d, err := NewDecider("r1", cfg)
	if err != nil {
		t.Fatal(err)
	}
	l := decidertest.New(t, "r1", d)
	ended(l, 1, "game", 1, -1, 1, -1) // x: 0 → 0.5 → 0.75, o: 0 → −0.5 → −0.75
	ended(l, 2, "game", 1, -1)
	learnt := events.Continued{Tasks: map[string]events.TaskLearnt{}}
	got := advantagesOf(t, l.Settle())
	if err := d.Learnt(l.View(), &learnt); err != nil {
		t.Fatal(err)
	}
	next := decidertest.New(t, "r1", d)
	next.Happen(events.RunOpenedType, "r1", events.RunOpened{Continues: &learnt})
	ended(next, 3, "game", 1, -1)
	for id, a := range advantagesOf(t, next.Settle()) {
		got[id] = a
	}
	for id, want := range map[string][]float64{"g000001": {1, -1, .5, -.5}, "g000002": {.25, -.25},
		"g000003": {.125, -.125}} {
		for i := range want {
			if len(got[id]) != len(want) || math.Abs(got[id][i]-want[i]) > 1e-9 {
				t.Errorf("%s: %v, want %v", id, got[id], want)
				break
			}
		}
	}
}

// TestRolesOfOutsiders: groups that outsiders bring have no roles.
func TestRolesOfOutsiders(t *testing.T) {
	l := newLog(t, func(cfg *runfile.RunConfig) { twoRoles(cfg); cfg.Advantage.Estimator = "mean_centred" })
	open(l, "x1", 2)
	scored(l, "x1-0", 1)
	scored(l, "x1-1", 0)
	for i, m := range decidertest.Data[events.GroupCompleted](t, l.Settle()[0]).Members {
		if m.Role != "" || m.Advantage != .5-float64(i) {
			t.Errorf("member %d: %+v", i, m)
		}
	}
}
