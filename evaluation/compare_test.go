package evaluation

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestSignFlipOfDarwinsPlants is the test's first worked example: the heights of 15 pairs of plants
// in The Design of Experiments (Fisher 1935, section 21). 863 of 32,768 flips come to 314 eighths
// of an inch or more, so twice that to ±314.
func TestSignFlipOfDarwinsPlants(t *testing.T) {
	d := []float64{49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48}
	if sum(d) != 314 {
		t.Fatal("not Darwin's figures")
	}
	if p, _, exact := signFlip(d, Options{Resamples: 100}); p != 2*863./32768 || !exact {
		t.Errorf("p = %g (exact: %v), want %g", p, exact, 2*863./32768)
	}
}

// TestSignFlipOfAllFlips compares with an enumeration that knows no recursion, ties and
// rounding errors among the terms.
func TestSignFlipOfAllFlips(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	for range 60 {
		d := make([]float64, 1+rng.IntN(11))
		var observed int
		for i := range d {
			v := rng.IntN(9) - 4
			d[i], observed = float64(v)*0.1, observed+v
		}
		hits := 0
		for flips := range uint(1) << len(d) {
			total := 0
			for i, v := range d {
				total += int(math.Round(10*v)) * (1 - 2*int(flips>>i&1))
			}
			if max(total, -total) >= max(observed, -observed) {
				hits++
			}
		}
		want := float64(hits) / float64(uint(1)<<len(d))
		if p, _, exact := signFlip(d, Options{Resamples: 100}); math.Abs(p-want) > 1e-12 || !exact {
			t.Errorf("%v: p = %g (exact: %v), want %g", d, p, exact, want)
		}
	}
}

// TestSampledFlips: of more differences than it enumerates, the sampled p is near the exact one,
// which a table of all sums gives.
func TestSampledFlips(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	for _, n := range []int{17, 64, 65, 130} {
		d, observed := make([]float64, n), 0
		sums := map[int]float64{0: 1} // how probable each sum of flips is
		for i := range d {
			v := 1 + rng.IntN(3)
			if rng.IntN(5) < 2 {
				v = -v
			}
			d[i], observed = float64(v), observed+v
			next := map[int]float64{}
			for s, p := range sums {
				next[s+v] += p / 2
				next[s-v] += p / 2
			}
			sums = next
		}
		var want float64
		for s, p := range sums {
			if max(s, -s) >= max(observed, -observed) {
				want += p
			}
		}
		p, _, exact := signFlip(d, Options{Resamples: 40_000, Seed: 5})
		if exact || math.Abs(p-want) > 4*math.Sqrt(want*(1-want)/40_000)+1e-4 {
			t.Errorf("%d differences: p = %g (exact: %v), want about %g", n, p, exact, want)
		}
	}
	if p, _, _ := signFlip(slices.Repeat([]float64{1}, 200), Options{Resamples: 1000}); p != 1./1001 {
		t.Errorf("a sampled p is never 0 and here no flip reaches: %g", p)
	}
}

// TestTiesAreNotFlipped: of many tasks of which few differ, all flips are tried.
func TestTiesAreNotFlipped(t *testing.T) {
	d := append(make([]float64, 300), 0.5, 0.5, 1e-17, -0.5, 1, 1)
	// 3.5, and 2.5 in three ways, of either sign
	if p, _, exact := signFlip(d, Options{Resamples: 100}); p != 8./32 || !exact {
		t.Errorf("p = %g (exact: %v)", p, exact)
	}
	if p, _, exact := signFlip(make([]float64, 20), Options{Resamples: 100}); p != 1 || !exact {
		t.Errorf("no difference at all: p = %g (exact: %v)", p, exact)
	}
}

// TestFlippedUsesAllBits: signs beyond the 64th are drawn as well.
func TestFlippedUsesAllBits(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for at := range 70 {
		d, seen := make([]float64, 70), 0
		d[at] = 1
		for range 64 {
			seen |= 1 << ((int(flipped(d, rng)) + 1) / 2)
		}
		if bits.OnesCount(uint(seen)) != 2 {
			t.Errorf("difference %d never changes its sign", at)
		}
	}
}

// rewards are attempts with these rewards, by task.
func rewards(tasks map[string][]float64) (all []Attempt) {
	for task, rewards := range tasks {
		for i, r := range rewards {
			all = append(all, Attempt{Rollout: task + string(rune('0'+i)), Task: task, Reward: r})
		}
	}
	return all
}

// TestCompare has figures by hand: task a is won, b lost, c tied, and d and e are not of both.
func TestCompare(t *testing.T) {
	a := rewards(map[string][]float64{"a": {1, 1}, "b": {0, 0.5}, "c": {1, 0}, "d": {1}})
	b := rewards(map[string][]float64{"a": {0, 0, 1, 0}, "b": {1, 0}, "c": {0, 1}, "e": {0}})
	c, err := Compare(a, b, "new", "old", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Tasks != 3 || !slices.Equal(c.OnlyA, []string{"d"}) ||
		!slices.Equal(c.OnlyB, []string{"e"}) || len(c.ByTask) != 3 {
		t.Errorf("tasks: %+v", c)
	}
	if len(c.PassAt) != 2 || c.PassAt[0].K != 1 || c.PassAt[1].K != 2 {
		t.Fatalf("pass@k: %+v", c.PassAt)
	}
	one, two := c.PassAt[0], c.PassAt[1]
	near(t, "pass@1", one.A, (1+0+0.5)/3)
	near(t, "pass@1 of the other", one.B, (0.25+0.5+0.5)/3)
	near(t, "difference", one.Difference.Value, (0.75-0.5)/3)
	if one.Wins != 1 || one.Losses != 1 || one.Ties != 1 || one.Verdict != NotShown || one.P != 1 || !one.Exact {
		t.Errorf("pass@1: %+v", one)
	}
	near(t, "pass@2", two.A, (1+0+1.)/3)
	near(t, "pass@2 of the other", two.B, (0.5+1+1)/3) // a: 1 − C(3,2)/C(4,2)
	near(t, "reward", c.Reward.A, (1+0.25+0.5)/3)
	if all := strings.Join(c.Notes, "\n"); !strings.Contains(all, "of new alone, not counted: d") ||
		!strings.Contains(all, "pass@1 differs on 2 tasks only") {
		t.Errorf("notes: %s", all)
	}
}

// TestCompareTasksOfFewAttempts: pass@k is of the tasks that both have k attempts of.
func TestCompareTasksOfFewAttempts(t *testing.T) {
	a := rewards(map[string][]float64{"a": {1, 0, 0}, "b": {1, 1}})
	b := rewards(map[string][]float64{"a": {0, 0, 0}, "b": {0, 0, 0}})
	c, err := Compare(a, b, "new", "old", Options{K: []int{3, 4}})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.PassAt) != 2 || c.PassAt[0].Tasks != 2 || c.PassAt[1].K != 3 || c.PassAt[1].Tasks != 1 ||
		c.PassAt[1].A != 1 || c.PassAt[1].Difference.Value != 1 {
		t.Errorf("pass@k: %+v", c.PassAt)
	}
	if all := strings.Join(c.Notes, "\n"); !strings.Contains(all, "pass@3 is of 1 of 2 tasks") ||
		!strings.Contains(all, "pass@4 is left out") {
		t.Errorf("notes: %s", all)
	}
}

// TestCompareTheOtherWayRound turns every sign and nothing else.
func TestCompareTheOtherWayRound(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for _, n := range []int{9, 40} {
		a := attempts(rng, n, 4, func(i int) float64 { return 0.8 })
		b := attempts(rng, n, 4, func(i int) float64 { return 0.3 })
		o := Options{K: []int{2}, Resamples: 1000}
		ab, err := Compare(a, b, "a", "b", o)
		if err != nil {
			t.Fatal(err)
		}
		ba, err := Compare(b, a, "b", "a", o)
		if err != nil {
			t.Fatal(err)
		}
		if ab.PassAt[0].Verdict != Better || ba.PassAt[0].Verdict != Worse {
			t.Errorf("%d tasks: verdicts %q and %q", n, ab.PassAt[0].Verdict, ba.PassAt[0].Verdict)
		}
		for i, d := range ab.PassAt {
			other := ba.PassAt[i]
			near(t, "A", d.A, other.B)
			near(t, "difference", d.Difference.Value, -other.Difference.Value)
			near(t, "p", d.P, other.P)
			if d.Wins != other.Losses || d.Ties != other.Ties {
				t.Errorf("wins %d, losses of the other %d", d.Wins, other.Losses)
			}
			if d.Difference.Low <= 0 || other.Difference.High >= 0 {
				t.Errorf("intervals %+v and %+v hold 0", d.Difference, other.Difference)
			}
		}
	}
}

// TestPairingHelps: a task that is hard for both is no noise. Unpaired, these policies'
// intervals overlap widely.
func TestPairingHelps(t *testing.T) {
	var a, b []Attempt
	for i := range 12 {
		task := string(rune('a' + i))
		for try := range 10 {
			reward := func(passes int) float64 { return float64(min(max(passes-try, 0), 1)) }
			a = append(a, Attempt{Rollout: task + string(rune('0'+try)), Task: task, Reward: reward(i%10 + 1)})
			b = append(b, Attempt{Rollout: task + string(rune('0'+try)), Task: task, Reward: reward(i % 10)})
		}
	}
	sa, _ := Summarise("a", a, Options{})
	sb, _ := Summarise("b", b, Options{})
	if sa.PassAt[0].Estimate.Low > sb.PassAt[0].Estimate.High {
		t.Errorf("these are to overlap: %+v and %+v", sa.PassAt[0], sb.PassAt[0])
	}
	c, err := Compare(a, b, "a", "b", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if d := c.PassAt[0]; d.Verdict != Better || d.P != 2./4096 {
		t.Errorf("all 12 tasks won: %+v", d)
	}
}

// TestVerdictsHoldTheirLevel: of two policies that are the same, about one comparison in twenty
// says otherwise, and no more.
func TestVerdictsHoldTheirLevel(t *testing.T) {
	rng := rand.New(rand.NewPCG(12, 13))
	const comparisons = 400
	wrong := 0
	for range comparisons {
		d := make([]float64, 9)
		for i := range d {
			for range 4 {
				d[i] += float64(rng.IntN(2)) - float64(rng.IntN(2))
			}
		}
		if p, _, _ := signFlip(d, Options{Resamples: 100}); p <= 0.05 {
			wrong++
		}
	}
	if wrong < comparisons/100 || wrong > comparisons*8/100 {
		t.Errorf("%d of %d comparisons of equals are significant at 0.05", wrong, comparisons)
	}
}

func TestCompareNothing(t *testing.T) {
	a, b := rewards(map[string][]float64{"a": {1}}), rewards(map[string][]float64{"b": {1}})
	if _, err := Compare(a, b, "new", "old", Options{}); err == nil ||
		!strings.Contains(err.Error(), "new with old: no task has a scored attempt in both") {
		t.Errorf("got %v", err)
	}
	if _, err := Compare(a, nil, "new", "old", Options{}); err == nil ||
		!strings.Contains(err.Error(), "old: there are no attempts") {
		t.Errorf("got %v", err)
	}
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) <= 1e-9*max(1, math.Abs(want))) {
		t.Errorf("%s: got %.12g, want %.12g", what, got, want)
	}
}

// TestVerdictAndIntervalAgree, or a note says why they do not, and what comparisons
// on so few tasks can show.
func TestVerdictAndIntervalAgree(t *testing.T) {
	side := func(rewards ...float64) (list []Attempt) {
		for i, r := range rewards {
			for j := range 4 {
				pass := 0.0
				if float64(j) < 4*r {
					pass = 1
				}
				list = append(list, Attempt{Rollout: fmt.Sprintf("g%d-%d", i, j),
					Task: fmt.Sprintf("t%02d", i), Reward: pass})
			}
		}
		return list
	}
	c, err := Compare(side(1, 0.75, 1, 0.75, 1, 0.5), side(0, 0, 0, 0, 0, 0.5), "new", "old", Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := c.PassAt[0]
	if d.P != 0.0625 || d.MidP >= d.P || d.Verdict != NotShown || d.Difference.Low <= 0 {
		t.Fatalf("%+v", d)
	}
	notes := strings.Join(c.Notes, "\n")
	for _, want := range []string{"pass@1: the interval leaves 0 out though p = 0.0625 is not significant",
		"the mid-p-value, 0.0312, is significant",
		"power: on 6 tasks like these a true difference of pass@1 of about 0."} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes lack %q:\n%s", want, notes)
		}
	}
	same, err := Compare(side(1, 1, 0, 0), side(1, 1, 0, 0), "new", "old", Options{})
	if notes := strings.Join(same.Notes, "\n"); err != nil || strings.Contains(notes, "though") ||
		strings.Contains(notes, "power") {
		t.Errorf("of equal sides: %v %s", err, notes)
	}
}

// TestConditionsThatDiffer are noted, and those that are the same are not.
func TestConditionsThatDiffer(t *testing.T) {
	a := Conditions{Name: "new", Model: "m@2", Settings: map[string]string{"sampling": `{"temperature":1}`,
		"limits": `{"turns":8}`}, Tasks: map[string]string{"x": "1", "y": "1"}}
	b := Conditions{Name: "old", Model: "m@1", Settings: map[string]string{"sampling": `{"temperature":0}`,
		"limits": `{"turns":8}`}, Tasks: map[string]string{"x": "2", "z": "1"}}
	var c Comparison
	c.CompareConditions(a, b)
	if len(c.Notes) != 2 || !strings.Contains(c.Notes[0],
		`differ in sampling, which may be what the figures show: {"temperature":1} against {"temperature":0}`) ||
		!strings.Contains(c.Notes[1], "1 task with the same name and other contents") {
		t.Errorf("%q", c.Notes)
	}
	c = Comparison{}
	if c.CompareConditions(a, a); len(c.Notes) > 0 {
		t.Errorf("of equal conditions: %q", c.Notes)
	}
	var page strings.Builder
	if err := WriteMarkdown(&page, Report{Title: "x", Conditions: []Conditions{a, b}}); err != nil ||
		!strings.Contains(page.String(), "## Conditions") || !strings.Contains(page.String(), "m@2") {
		t.Errorf("%v: %s", err, page.String())
	}
}
