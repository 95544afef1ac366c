package runfile

import (
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

func TestReward(t *testing.T) {
	half := 0.5
	for name, c := range map[string]struct {
		scoring    Scoring
		components map[string]float64
		want       float64
		err        string
	}{
		"the verifier's": {Scoring{}, map[string]float64{"reward": 0.25, "style": 9}, 0.25, ""},
		"a sum": {Scoring{Weights: map[string]float64{"passed": 0.75, "style": 0.25}},
			map[string]float64{"reward": 1, "passed": 1, "style": -1}, 0.5, ""},
		"a penalty": {Scoring{Weights: map[string]float64{"reward": 1, "warnings": -0.125}},
			map[string]float64{"reward": 1, "warnings": 4}, 0.5, ""},
		"no weight at all": {Scoring{Weights: map[string]float64{"reward": 0}},
			map[string]float64{"reward": 1}, 0, ""},
		"at the threshold": {Scoring{Threshold: &half}, map[string]float64{"reward": 0.5}, 1, ""},
		"below it": {Scoring{Threshold: &half},
			map[string]float64{"reward": math.Nextafter(0.5, 0)}, 0, ""},
		"a sum and a threshold": {Scoring{Weights: map[string]float64{"a": 1, "b": 1}, Threshold: &half},
			map[string]float64{"a": 0.25, "b": 0.25}, 1, ""},
		"feedback": {Scoring{}, map[string]float64{"feedback": 0.25}, 0.25, ""},
		"feedback has no weight": {Scoring{Weights: map[string]float64{"reward": 3}},
			map[string]float64{"feedback": 0.25}, 0.25, ""},
		"feedback has a threshold": {Scoring{Threshold: &half}, map[string]float64{"feedback": 0.75}, 1, ""},
		"a component of that name": {Scoring{}, map[string]float64{"reward": 1, "feedback": 0.25}, 1, ""},
		"a component is missing": {Scoring{Weights: map[string]float64{"style": 1}},
			map[string]float64{"reward": 1, "b": 2}, 0, `"style"; there are ["b" "reward"]`},
		"another component": {Scoring{}, map[string]float64{"score": 1}, 0,
			`"reward"; there are ["score"]: weigh them in scorer.weights`},
		"nothing was reported": {Scoring{}, nil, 0, `"reward"`},
		"a sum that is no number": {Scoring{Weights: map[string]float64{"a": 1e6, "b": 1e6}},
			map[string]float64{"a": 1e308, "b": -1e308}, 0, "finite"},
		"a sum that is unbounded": {Scoring{Weights: map[string]float64{"a": 2}, Threshold: &half},
			map[string]float64{"a": 1.5e308}, 0, "finite"},
		"a huge reward": {Scoring{}, map[string]float64{"reward": 1e308}, 0, "must be within ±1e+09"},
		"a huge loss": {Scoring{Weights: map[string]float64{"ns": -1}}, map[string]float64{"ns": 2e9}, 0,
			"must be within ±1e+09"},
		"the largest reward":        {Scoring{}, map[string]float64{"reward": -1e9, "ns": 2e9}, -1e9, ""},
		"a huge sum, a threshold":   {Scoring{Threshold: &half}, map[string]float64{"reward": 1e12}, 1, ""},
		"an endless list of others": {Scoring{Weights: map[string]float64{"zz": 1}}, many(1000), 0, "and 990 more"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.scoring.Reward(c.components)
			if c.err == "" && (err != nil || got != c.want) ||
				c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) || got != 0) {
				t.Errorf("%s: %g, %v; want %g %s", name, got, err, c.want, c.err)
			}
			if err != nil && len(err.Error()) > 1000 {
				t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
			}
		})
	}
	if _, err := (Scoring{Weights: map[string]float64{"style": 1}}).Reward(
		map[string]float64{"reward": 1}); !errors.Is(err, ErrNoComponent) {
		t.Errorf("%v is not ErrNoComponent", err)
	}
}

func many(n int) map[string]float64 {
	m := map[string]float64{}
	for range n {
		m[strings.Repeat("n", 100)+strconv.Itoa(len(m))] = 1
	}
	return m
}

// TestRewardIsTheSameAgain sums numbers of very different sizes, whose sum depends on the order
// in which they are added.
func TestRewardIsTheSameAgain(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	s := Scoring{Weights: map[string]float64{}}
	components := map[string]float64{}
	for name := range many(30) {
		s.Weights[name], components[name] = random.NormFloat64(), math.Ldexp(random.NormFloat64(), random.IntN(60)-40)
	}
	first, err := s.Reward(components)
	if err != nil {
		t.Fatal(err)
	}
	for range 200 { // maps begin somewhere else each time
		if again, _ := s.Reward(components); again != first {
			t.Fatalf("%g became %g", first, again)
		}
	}
}

func TestScoringIsValidated(t *testing.T) {
	limit := math.Inf(1)
	for name, c := range map[string]struct {
		scoring Scoring
		want    string
	}{
		"none":    {Scoring{}, ""},
		"weights": {Scoring{Weights: map[string]float64{"reward": 1, "tests passed": -2}}, ""},
		"a weight that is NaN": {Scoring{Weights: map[string]float64{"reward": math.NaN()}},
			"scorer.weights.reward NaN"},
		"a huge weight": {Scoring{Weights: map[string]float64{"reward": 1e7}},
			"scorer.weights.reward 1e+07"},
		"a weight without a name": {Scoring{Weights: map[string]float64{" ": 1}}, `scorer.weights " "`},
		"a weight with a long one": {Scoring{Weights: map[string]float64{strings.Repeat("x", 101): 1}},
			"at most 100 bytes"},
		"too many weights":      {Scoring{Weights: many(101)}, "101 of them, at most 100"},
		"an infinite threshold": {Scoring{Threshold: &limit}, "scorer.threshold +Inf"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := validConfig()
			cfg.Scorer = c.scoring
			err := cfg.Validate()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
		})
	}
}
