package querysampler

import (
	"math"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

func TestWeights(t *testing.T) {
	for _, c := range []struct {
		c     runfile.Curriculum
		p     float64
		tried bool
		want  float64
	}{
		{runfile.Curriculum{}, 0, false, 1},
		{runfile.Curriculum{}, 0, true, 0.1},
		{runfile.Curriculum{}, 1, true, 0.1},
		{runfile.Curriculum{}, 0.5, true, 1},
		{runfile.Curriculum{Floor: new(0.2)}, 0.25, true, 0.2 + 0.8*0.75},
		{runfile.Curriculum{Floor: new(0.0)}, 1, true, 0},
	} {
		if got := weight(c.c, c.p, c.tried); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("weight(%+v, %g, %v) = %g, want %g", c.c, c.p, c.tried, got, c.want)
		}
	}
}

func TestPassRates(t *testing.T) {
	members := []events.Member{{Reward: 1}, {Reward: 0.4}, {Reward: 2}, {Failed: true, Reward: 1}, {Reward: 0}}
	for _, c := range []struct {
		c      runfile.Curriculum
		before float64
		tried  bool
		want   float64
	}{
		{runfile.Curriculum{}, 0, false, 0.5},
		{runfile.Curriculum{}, 1, true, 0.8 + 0.2*0.5},
		{runfile.Curriculum{PassAt: new(0.3), Decay: new(0.5)}, 0, true, 0.5 * 0.75},
		{runfile.Curriculum{PassAt: new(0.0), Decay: new(0.0)}, 0, true, 1},
	} {
		got, ok := passRate(c.c, c.before, c.tried, members)
		if !ok || math.Abs(got-c.want) > 1e-12 {
			t.Errorf("passRate(%+v, %g, %v) = %g, %v, want %g", c.c, c.before, c.tried, got, ok, c.want)
		}
	}
	if got, ok := passRate(runfile.Curriculum{}, 0.3, true, members[3:4]); ok || got != 0.3 {
		t.Errorf("a group of failures moves the rate to %g, %v", got, ok)
	}
}

// TestCurriculum: tasks that always pass or always fail are drawn by the floor, the
// others as the formula says.
func TestCurriculum(t *testing.T) {
	change := func(c *runfile.RunConfig) { c.Curriculum, c.Seed = &runfile.Curriculum{}, 7 }
	l := newLog(t, change)
	opened(l)
	one, half := []events.Member{{Reward: 1}, {Reward: 1}}, []events.Member{{Reward: 1}, {Reward: 0}}
	for task, members := range map[string][]events.Member{
		"task-0": one, "task-1": {{Reward: 0}, {Reward: 0}}, "task-2": half,
		"task-3": {{Failed: true}, {Failed: true}}, "q1": half,
	} {
		l.Happen(events.GroupCompletedType, "xgroup", events.GroupCompleted{Task: task, Members: members})
	}
	if n := countKeys(t, l, passRates); n != 3 {
		t.Errorf("%d pass rates instead of 3", n)
	}
	d := NewDecider(testRun, config(change))
	draw, err := d.drawer(l.View())
	if err != nil {
		t.Fatal(err)
	}
	const draws = 20000
	drawn := map[string]float64{}
	for n := range int64(draws) {
		if again, _ := d.drawer(l.View()); n < 50 && again(n) != draw(n) {
			t.Fatalf("draw %d comes out differently", n)
		}
		drawn[draw(n)]++
	}
	// Chi-squared with 4 degrees of freedom is below 18.5 in 999 of 1000 cases; the seed is fixed.
	chi, total := 0.0, 0.1+0.1+1+1+1
	for task, w := range map[string]float64{"task-0": 0.1, "task-1": 0.1, "task-2": 1, "task-3": 1, "task-4": 1} {
		want := draws * w / total
		chi += (drawn[task] - want) * (drawn[task] - want) / want
	}
	if chi > 18.5 {
		t.Errorf("drawn %v, chi-squared %.1f", drawn, chi)
	}
}

// TestCurriculumOpensWhatItDraws in the order of the draws.
func TestCurriculumOpensWhatItDraws(t *testing.T) {
	change := func(c *runfile.RunConfig) { c.Curriculum, c.Seed = &runfile.Curriculum{}, 3 }
	l := newLog(t, change)
	opened(l)
	draw, err := NewDecider(testRun, config(change)).drawer(l.View())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := tasksOf(t, l.Settle()), []string{draw(1), draw(2), draw(3), draw(4)}; !slices.Equal(got, want) {
		t.Errorf("opens %v, want %v", got, want)
	}
}
