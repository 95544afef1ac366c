package advantage

import (
	"math"
	"testing"
)

// golden are the advantages of a success and of a failure in a group of eight with three successes,
// computed with numpy from each system's own formula.
var golden = map[string]struct {
	estimator, preset string
	params            map[string]any
	success, failure  float64
}{
	"prime-rl grpo":   {preset: "prime_rl", success: 0.625, failure: -0.375},
	"Tinker":          {preset: "tinker", success: 0.625, failure: -0.375},
	"Composer 2":      {preset: "composer2", success: 0.625, failure: -0.375},
	"Dr. GRPO":        {estimator: "mean_centred", success: 0.625, failure: -0.375},
	"verl grpo":       {preset: "verl", success: 1.207612, failure: -0.724567},
	"slime":           {preset: "slime", success: 1.207612, failure: -0.724567},
	"SkyRL, ROLL":     {estimator: "std_normalised", success: 1.207612, failure: -0.724567},
	"TRL GRPOTrainer": {preset: "trl", success: 1.207381, failure: -0.724429},
	"TRL AsyncGRPO":   {preset: "trl_async", success: 1.290994, failure: -0.774597},
	"rLLM":            {preset: "rllm", success: 1.290992, failure: -0.774595},
	"Atropos": {estimator: "std_normalised",
		params: map[string]any{"ddof": 0, "eps": 1e-8, "eps_at": "max"}, success: 1.290994, failure: -0.774597},
	"eps inside of the root": {estimator: "std_normalised",
		params: map[string]any{"eps": 0.01, "eps_at": "inside"}, success: 1.185685, failure: -0.711411},
	"RLOO":            {estimator: "rloo", success: 0.714286, failure: -0.428571},
	"prime-rl max_rl": {estimator: "maxrl", success: 1.666667, failure: -1},
	"SkyRL maxrl": {estimator: "maxrl", params: map[string]any{"eps": 1e-6},
		success: 1.666662, failure: -0.999997},
	"NeMo-RL":                         {preset: "nemo_rl", success: 1.463847, failure: -0.801782},
	"REINFORCE++ before its batch":    {estimator: "reinforce_plus_plus", success: 1, failure: 0},
	"REINFORCE++ baseline, likewise":  {estimator: "reinforce_plus_plus_baseline", success: 0.625, failure: -0.375},
	"leave-one-out baseline with std": {estimator: "leave_one_out", success: 1.463847, failure: -0.801782},
}

func TestGoldenGroup(t *testing.T) {
	rewards := []float64{1, 1, 1, 0, 0, 0, 0, 0}
	for name, c := range golden {
		params := c.params
		if c.preset != "" {
			var err error
			if c.estimator, params, err = Preset(c.preset); err != nil {
				t.Fatal(err)
			}
		}
		for i, a := range estimate(t, c.estimator, params, rewards) {
			want := c.failure
			if rewards[i] == 1 {
				want = c.success
			}
			if math.Abs(a-want) > 1e-6 {
				t.Errorf("%s: member %d: got %.6f, want %.6f", name, i, a, want)
			}
		}
	}
}

// A baseline of 0.4, from the formula: 1 − 0.4, then 0.95·0.4 + 0.05·1 = 0.43, and so on.
func TestRAE(t *testing.T) {
	advantages, after := RAE([]float64{1, math.NaN(), 0, 1}, 0.4, 0.95)
	near(t, "advantages", advantages, []float64{0.6, math.NaN(), -0.43, 0.5915})
	near(t, "the baseline after", []float64{after}, []float64{0.438075})
	e, err := New("rae", map[string]any{"decay": 0.5})
	if err != nil || !e.Remembers() {
		t.Fatalf("rae remembers nothing: %v", err)
	}
	advantages, after = e.Group([]float64{1, 1}, 0)
	near(t, "decay 0.5", append(advantages, after), []float64{1, 0.5, 0.75})
	advantages, after = RAE([]float64{0.1, 0.1, 0.1}, 0, 0.95)
	near(t, "all equal", append(advantages, after), []float64{0.1, 0.095, 0.09025, 0.0142625})
	advantages, after = RAE([]float64{0.7}, 0.5, 0.95)
	near(t, "one", append(advantages, after), []float64{0.2, 0.51})
	if advantages, after = e.Group(nil, 0.3); len(advantages) != 0 || after != 0.3 {
		t.Errorf("an empty group: %v, baseline %g", advantages, after)
	}
}

// verl whitens over tokens: [1 1 1 1 0 0] has the mean 2/3 and, over 6 − 1, the variance 4/15.
func TestWhitening(t *testing.T) {
	for name, c := range map[string]struct {
		estimator  string
		params     map[string]any
		advantages []float64
		tokens     []int
		want       []float64
	}{
		"weighs by tokens": {"reinforce_plus_plus", nil, []float64{1, 0}, []int{4, 2},
			[]float64{0.645497, -1.290994}},
		"population variance": {"reinforce_plus_plus", map[string]any{"ddof": 0, "eps": 0}, []float64{1, 0},
			[]int{4, 2}, []float64{0.707107, -1.414214}},
		"eps under the root": {"reinforce_plus_plus", map[string]any{"eps": 0.1}, []float64{1, 0},
			[]int{4, 2}, []float64{0.550482, -1.100964}},
		"the baseline's": {"reinforce_plus_plus_baseline", nil, []float64{0.5, -0.5, 0}, []int{1, 1, 2},
			[]float64{1.224745, -1.224745, 0}},
		"no tokens do not count": {"reinforce_plus_plus", nil, []float64{1, 0, 5}, []int{4, 2, 0},
			[]float64{0.645497, -1.290994, 8.391464}},
		"no advantage stays none": {"reinforce_plus_plus", nil, []float64{1, 0, math.NaN()}, []int{4, 2, 9},
			[]float64{0.645497, -1.290994, math.NaN()}},
		"all equal": {"reinforce_plus_plus", map[string]any{"eps": 0}, []float64{0.1, 0.1, 0.1},
			[]int{3, 5, 7}, []float64{0, 0, 0}},
		"rewards that overflow": {"reinforce_plus_plus", nil, []float64{math.MaxFloat64, -math.MaxFloat64},
			[]int{1, math.MaxInt}, []float64{0, 0}},
		"one token":       {"reinforce_plus_plus", nil, []float64{3}, []int{1}, []float64{0}},
		"one rollout":     {"reinforce_plus_plus", nil, []float64{3}, []int{9}, []float64{0}},
		"nothing sampled": {"reinforce_plus_plus", nil, []float64{3, 1}, []int{0, 0}, []float64{0, 0}},
		"no rollouts":     {"reinforce_plus_plus", nil, nil, nil, nil},
		"only members without advantage": {"reinforce_plus_plus", nil, []float64{math.NaN()},
			[]int{3}, []float64{math.NaN()}},
	} {
		t.Run(name, func(t *testing.T) {
			normalise, ok := Batchwise(c.estimator, c.params)
			if !ok {
				t.Fatalf("%s: %s has no part for the batch", name, c.estimator)
			}
			near(t, name, normalise(c.advantages, c.tokens), c.want)
		})
	}
	for _, name := range Names() {
		_, ok := Batchwise(name, nil)
		if want := name == "reinforce_plus_plus" || name == "reinforce_plus_plus_baseline"; ok != want {
			t.Errorf("%s: batch-wise %v", name, ok)
		}
		e, _ := New(name, nil)
		if got := e.Batch([]float64{1, 0}, []int{1, 1}); !ok && (got[0] != 1 || got[1] != 0) {
			t.Errorf("%s changes a batch: %v", name, got)
		}
	}
	if _, ok := Batchwise("reinforce_plus_plus", map[string]any{"eps": "much"}); ok {
		t.Error("wrong parameters normalise")
	}
}

func TestTokens(t *testing.T) {
	for name, c := range map[string]struct {
		spans  []Span
		weight float64
		want   []float64
	}{
		"no spans":         {nil, 1, []float64{1, 1, 1, 1}},
		"one span":         {[]Span{{1, 2, 0.5}}, 2, []float64{1, 2, 2, 1}},
		"spans add up":     {[]Span{{0, 3, 1}, {2, 2, -0.5}}, 1, []float64{2, 2, 1.5, 0.5}},
		"weight 0":         {[]Span{{0, 4, 9}}, 0, []float64{1, 1, 1, 1}},
		"beyond the end":   {[]Span{{3, 100, 1}}, 1, []float64{1, 1, 1, 2}},
		"before the start": {[]Span{{-2, 3, 1}}, 1, []float64{2, 1, 1, 1}},
		"outside":          {[]Span{{4, 1, 1}, {-3, 3, 1}, {1, 0, 1}, {2, -5, 1}}, 1, []float64{1, 1, 1, 1}},
		"lengths that overflow": {[]Span{{2, math.MaxInt, 1}, {math.MinInt, math.MaxInt, 1},
			{math.MaxInt, math.MaxInt, 1}}, 1, []float64{1, 1, 2, 2}},
		"a reward that is none":     {[]Span{{0, 4, math.NaN()}, {0, 4, math.Inf(1)}}, 1, []float64{1, 1, 1, 1}},
		"a weight that overflows":   {[]Span{{0, 4, math.MaxFloat64}}, 1000, []float64{1, 1, 1, 1}},
		"the whole turn, and weigh": {[]Span{{0, 4, -1}}, 0.5, []float64{0.5, 0.5, 0.5, 0.5}},
	} {
		near(t, name, Tokens(1, 4, c.spans, c.weight), c.want)
	}
	if got := Tokens(1, 0, []Span{{0, 1, 1}}, 1); len(got) != 0 {
		t.Errorf("no tokens have advantages: %v", got)
	}
}

func estimate(t *testing.T, name string, params map[string]any, rewards []float64) []float64 {
	t.Helper()
	e, err := New(name, params)
	if err != nil {
		t.Fatal(err)
	}
	advantages, _ := e.Group(rewards, 0)
	return advantages
}

func near(t *testing.T, what string, got, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
		return
	}
	for i := range got {
		if math.IsNaN(got[i]) != math.IsNaN(want[i]) || math.Abs(got[i]-want[i]) > 1e-6 {
			t.Errorf("%s: %d: got %.6f, want %.6f", what, i, got[i], want[i])
		}
	}
}
