package evaluation

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// bandit is a rollout of two tokens: an arm, and another token that both policies choose alike.
func bandit(name string, arm int, behaviour, candidate, rewards []float64) Sampled {
	return Sampled{Rollout: name, Reward: rewards[arm], Behaviour: []float64{math.Log(behaviour[arm]), -0.7},
		Candidate: []float64{math.Log(candidate[arm]), -0.7}}
}

// TestOffPolicyValueOfABandit: of rollouts that come exactly as often as the behaviour chooses
// their arms, both estimates are the candidate's value Σ c(a)·r(a), the mean weight is 1, and the
// effective sample size n / Σ c²/b.
func TestOffPolicyValueOfABandit(t *testing.T) {
	behaviour, candidate, rewards := []float64{0.5, 0.3, 0.2}, []float64{0.1, 0.2, 0.7}, []float64{0, 0.5, 2}
	var all []Sampled
	for arm, b := range behaviour {
		for i := range int(math.Round(200 * b)) {
			all = append(all, bandit(fmt.Sprint(arm, "-", i), arm, behaviour, candidate, rewards))
		}
	}
	v, err := OffPolicyValue(all, Options{})
	if err != nil {
		t.Fatal(err)
	}
	const want = 0.2*0.5 + 0.7*2
	near(t, "ordinary", v.Ordinary.Value, want)
	near(t, "weighted", v.Weighted.Value, want)
	near(t, "recorded", v.Recorded.Value, 0.3*0.5+0.2*2)
	near(t, "mean weight", v.MeanWeight.Value, 1)
	near(t, "effective sample size", v.EffectiveSampleSize, 200/(0.01/0.5+0.04/0.3+0.49/0.2))
	near(t, "largest share", v.LargestShare, 3.5/200)
	if len(v.Warnings) != 1 || !strings.Contains(v.Warnings[0], "76.8 of 200 rollouts (38 %, warned of below 50 %)") ||
		v.Rollouts != 200 {
		t.Errorf("%+v", v)
	}
	// The error of a mean of weights w·r with known variance; the interval is wider than ±
	// one of them on each side.
	deviation := math.Sqrt((0.3*math.Pow(0.2/0.3*0.5, 2) + 0.2*math.Pow(3.5*2, 2) - want*want) / 200)
	if low, high := v.Ordinary.Low, v.Ordinary.High; math.Abs((high-low)/2-1.96*deviation) > 0.1*deviation {
		t.Errorf("interval of the ordinary estimate %g to %g, want about ± %g", low, high, 1.96*deviation)
	}
}

// TestOffPolicyIntervals samples bandits anew many times: both intervals must hold the candidate's
// value about as often as they promise.
func TestOffPolicyIntervals(t *testing.T) {
	behaviour, candidate, rewards := []float64{0.6, 0.4}, []float64{0.3, 0.7}, []float64{0.2, 1}
	const truth, evaluations = 0.3*0.2 + 0.7*1, 300
	rng := rand.New(rand.NewPCG(8, 8))
	hits := map[string]int{}
	for range evaluations {
		var all []Sampled
		for i := range 40 {
			arm := 0
			if rng.Float64() >= behaviour[0] {
				arm = 1
			}
			all = append(all, bandit(fmt.Sprint(i), arm, behaviour, candidate, rewards))
		}
		v, err := OffPolicyValue(all, Options{Resamples: 300})
		if err != nil {
			t.Fatal(err)
		}
		for name, e := range map[string]Estimate{"ordinary": *v.Ordinary, "weighted": v.Weighted} {
			if e.Low <= truth && truth <= e.High {
				hits[name]++
			}
		}
	}
	for _, name := range []string{"ordinary", "weighted"} {
		if held := float64(hits[name]) / evaluations; held < 0.91 || held > 0.99 {
			t.Errorf("%s: intervals of 0.95 held the value in %.3f of all", name, held)
		}
	}
}

// TestTheSamePolicy: without a difference all estimates are the recorded mean,
// and every rollout counts.
func TestTheSamePolicy(t *testing.T) {
	var all []Sampled
	for i := range 30 {
		logprobs := []float64{-0.1 * float64(i), -3}
		all = append(all, Sampled{Rollout: fmt.Sprint(i), Reward: float64(i % 3),
			Behaviour: logprobs, Candidate: logprobs})
	}
	v, err := OffPolicyValue(all, Options{})
	if err != nil || len(v.Warnings) > 0 {
		t.Fatal(err, v.Warnings)
	}
	if v.Recorded != v.Weighted || v.Recorded != *v.Ordinary || v.EffectiveSampleSize != 30 || v.MeanWeight.Value != 1 {
		t.Errorf("%+v", v)
	}
}

// TestWeightsOfLongRollouts: whatever the size of the weights, the self-normalised estimate is that
// of the weights divided by the largest; a number is left out rather than infinite.
func TestWeightsOfLongRollouts(t *testing.T) {
	sampled := func(shift float64) (all []Sampled) {
		for i := range 12 {
			s := Sampled{Rollout: fmt.Sprint(i), Reward: float64(i % 2)}
			for range 5000 {
				s.Behaviour, s.Candidate = append(s.Behaviour, -3), append(s.Candidate, -3+shift+float64(i)/1e5)
			}
			all = append(all, s)
		}
		return all
	}
	var weights, rewards float64
	for i := range 12 {
		w := math.Exp(5000 * float64(i) / 1e5)
		weights, rewards = weights+w, rewards+w*float64(i%2)
	}
	for _, shift := range []float64{0, 2, -7, 0.01} { // the last two: e^-35000 and e^50
		v, err := OffPolicyValue(sampled(shift), Options{Resamples: 200})
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(v.Weighted.Value-rewards/weights) > 1e-6 || !(v.Weighted.Low >= 0 && v.Weighted.High <= 1) ||
			!(v.EffectiveSampleSize > 10 && v.EffectiveSampleSize <= 12) {
			t.Errorf("shift %g: %+v", shift, v)
		}
		warned := strings.Contains(strings.Join(v.Warnings, "\n"), "the ordinary estimate is too large for a number")
		if tooLarge := shift == 2; warned != tooLarge || (v.Ordinary == nil) != tooLarge ||
			(v.MeanWeight == nil) != tooLarge {
			t.Errorf("shift %g: warnings %q, ordinary %v", shift, v.Warnings, v.Ordinary)
		}
	}
}

// TestOneRolloutHasAllTheWeight: resamples without it, where all other weights are 0 beside
// it, still have an estimate.
func TestOneRolloutHasAllTheWeight(t *testing.T) {
	var all []Sampled
	for i := range 50 {
		s := Sampled{Rollout: fmt.Sprint(i), Behaviour: []float64{-5000}, Candidate: []float64{-5000}}
		if i == 7 {
			s.Reward, s.Candidate = 1, []float64{-100}
		}
		all = append(all, s)
	}
	v, err := OffPolicyValue(all, Options{Resamples: 300})
	if err != nil {
		t.Fatal(err)
	}
	if v.Weighted.Value != 1 || v.Weighted.Low != 0 || v.Weighted.High != 1 {
		t.Errorf("an interval that does not say that all hangs on one rollout: %+v", v.Weighted)
	}
	near(t, "effective sample size", v.EffectiveSampleSize, 1)
	if all := strings.Join(v.Warnings, "\n"); !strings.Contains(all,
		"1 of 50 rollouts (2 %, warned of below 50 %), and one has 100 % of the weight") {
		t.Errorf("warnings: %s", all)
	}
}

// TestTasksAreResampledWhole: rollouts of a task that all have its reward are
// no more than one of them.
func TestTasksAreResampledWhole(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	var alone, tasks []Sampled
	for i := range 100 {
		s := Sampled{Rollout: fmt.Sprint(i), Reward: float64(i / 10 % 2), Behaviour: []float64{-1},
			Candidate: []float64{-1 + 0.1*rng.NormFloat64()}}
		alone = append(alone, s)
		s.Task = fmt.Sprint(i / 10)
		tasks = append(tasks, s)
	}
	a, err := OffPolicyValue(alone, Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := OffPolicyValue(tasks, Options{})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "weighted", a.Weighted.Value, b.Weighted.Value)
	near(t, "ordinary", a.Ordinary.Value, b.Ordinary.Value)
	// √10 and what few tasks add
	if ratio := (b.Weighted.High - b.Weighted.Low) / (a.Weighted.High - a.Weighted.Low); ratio < 2.5 || ratio > 5 {
		t.Errorf("the interval over tasks is %.2f times as wide", ratio)
	}
	for i := range tasks {
		tasks[i].Task = "one"
	}
	if v, err := OffPolicyValue(tasks, Options{}); err != nil || v.Weighted.Low != v.Weighted.Value ||
		!strings.Contains(v.Warnings[0], "of one task") {
		t.Errorf("one task: %v %+v", err, v)
	}
}

// TestUnfittingLogprobs: weights that are 1 on average cannot all be small.
func TestUnfittingLogprobs(t *testing.T) {
	var all []Sampled
	for i := range 60 {
		all = append(all, Sampled{Rollout: fmt.Sprint(i), Reward: float64(i % 2), Behaviour: []float64{-1, -1},
			Candidate: []float64{-1.5 - float64(i%5)/10, -1.5}})
	}
	v, err := OffPolicyValue(all, Options{})
	if err != nil || !strings.Contains(strings.Join(v.Warnings, "\n"), "the mean weight is 0.3") {
		t.Errorf("%v: %q", err, v.Warnings)
	}
}

func TestRefusedRollouts(t *testing.T) {
	for _, c := range []struct {
		s    Sampled
		want string
	}{
		{Sampled{Behaviour: []float64{-1, -2}, Candidate: []float64{-1}},
			`rollout "g": 2 sampled tokens have log-probabilities, and the candidate gives 1`},
		{Sampled{}, "no sampled tokens"},
		{Sampled{Behaviour: []float64{-1}, Candidate: []float64{0.5}}, "token 0: 0.5 is not a log-probability"},
		{Sampled{Behaviour: []float64{0, math.Inf(-1)}, Candidate: []float64{0, 0}}, "token 1: -Inf"},
		{Sampled{Behaviour: []float64{math.NaN()}, Candidate: []float64{0}}, "token 0: NaN"},
		{Sampled{Behaviour: []float64{-1}, Candidate: []float64{-1}, Reward: math.NaN()}, "a reward of NaN"},
	} {
		c.s.Rollout = "g"
		if _, err := OffPolicyValue([]Sampled{c.s}, Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want %q, got %v", c.want, err)
		}
	}
	good := Sampled{Rollout: "g", Behaviour: []float64{-1}, Candidate: []float64{-1}}
	if _, err := OffPolicyValue([]Sampled{good, good}, Options{}); err == nil ||
		!strings.Contains(err.Error(), `rollout "g" appears twice`) {
		t.Errorf("twice: %v", err)
	}
	if _, err := OffPolicyValue(nil, Options{}); err == nil {
		t.Error("a value of nothing")
	}
}
