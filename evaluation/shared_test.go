package evaluation

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// attempts are tries of each of n tasks, of which one with index i passes
// with the given probability.
func attempts(rng *rand.Rand, tasks, tries int, chance func(task int) float64) (all []Attempt) {
	for i := range tasks {
		for try := range tries {
			a := Attempt{Rollout: fmt.Sprintf("g%06d-%d", i, try), Task: fmt.Sprintf("task-%03d", i),
				Turns: 2 + rng.IntN(7), Tokens: 200 + rng.IntN(3000),
				Sampled: 50 + rng.IntN(500), ToolCalls: rng.IntN(9), Seconds: 1 + 9*rng.Float64(), StopReason: "stop",
				Version: 3, Trajectory: fmt.Sprintf("trajectories/g%06d-%d.arrow", i, try)}
			if rng.Float64() < chance(i) {
				a.Reward = 1
			}
			all = append(all, a)
		}
	}
	return all
}

var when = time.Date(2026, 11, 22, 2, 30, 0, 0, time.UTC)

// report has a bit of everything.
func report(t *testing.T) Report {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	a := attempts(rng, 12, 8, func(i int) float64 { return float64(i) / 12 })
	b := attempts(rng, 12, 8, func(i int) float64 { return float64(i) / 20 })
	a[7].Failed, a[8].Failed = true, true
	for i := range 8 {
		b[i].Failed = true
	}
	o := Options{K: []int{1, 2, 4, 8}, Resamples: 1000}
	first, err := Summarise("repair@4", a, o)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Summarise("repair@1", b, o)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Compare(a, b, "repair@4", "repair@1", Options{Resamples: 1000})
	if err != nil {
		t.Fatal(err)
	}
	r := Report{Title: "Evaluation of repair@4", Policy: "repair", Version: 4, Endpoint: "builtin",
		Pack: "sample", Run: "eval-1",
		When: when, Summaries: []Summary{first, second}, Comparisons: []Comparison{c}}
	for version := range int64(6) {
		s, err := Summarise("repair", attempts(rng, 12, 4, func(i int) float64 { return float64(version) / 8 }),
			Options{Resamples: 1000})
		if err != nil {
			t.Fatal(err)
		}
		r.Curve = append(r.Curve, s.Point(version, fmt.Sprintf("eval-v%d", version), r.When))
	}
	var sampled []Sampled
	for i := range 60 {
		sampled = append(sampled, Sampled{Rollout: fmt.Sprint(i), Task: fmt.Sprint(i % 12), Reward: float64(i % 2),
			Behaviour: []float64{-1}, Candidate: []float64{-1.2 + 0.35*float64(i%2)}})
	}
	value, err := OffPolicyValue(sampled, Options{Resamples: 1000})
	if err != nil {
		t.Fatal(err)
	}
	r.OffPolicy = &value
	return r
}
