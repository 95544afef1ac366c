package advantage

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
)

// nan is a member without a reward.
var nan = math.NaN()

// TestEdges says of each estimator what it makes of groups that say little: groups of one, of equal
// rewards, and of members without a reward.
func TestEdges(t *testing.T) {
	raw, covered := map[string]any{"singleton": "raw"}, map[string]bool{}
	for _, c := range []struct {
		name   string
		params map[string]any
		one    float64 // the advantage of a group of one whose reward is 0.7
		equal  float64 // the advantages of three rewards of 0.1, which no binary fraction equals
	}{
		{"mean_centred", nil, 0, 0},
		{"std_normalised", nil, 0, 0},
		{"std_normalised", raw, 0.7, 0},
		{"std_normalised", map[string]any{"eps": 0}, 0, 0},
		{"std_normalised", map[string]any{"eps": 0, "ddof": 0, "eps_at": "inside"}, 0, 0},
		{"std_normalised", map[string]any{"eps": 0, "eps_at": "max"}, 0, 0},
		{"rloo", nil, 0, 0},
		{"maxrl", nil, 0, 0},
		{"leave_one_out", nil, 0, 0},
		{"reinforce_plus_plus", nil, 0.7, 0.1},
		{"reinforce_plus_plus_baseline", nil, 0, 0},
		{"reinforce_plus_plus_baseline", raw, 0.7, 0},
		{"rae", map[string]any{"decay": 1}, 0.7, 0.1}, // its baseline stays 0; TestRAE moves it
	} {
		covered[c.name] = true
		for _, g := range []struct {
			what       string
			rewards    []float64
			advantages []float64
		}{
			{"none", nil, nil},
			{"one", []float64{0.7}, []float64{c.one}},
			{"one of three", []float64{nan, 0.7, nan}, []float64{nan, c.one, nan}},
			{"all equal", []float64{0.1, 0.1, 0.1}, []float64{c.equal, c.equal, c.equal}},
			{"all equal but one without", []float64{0.1, nan, 0.1, 0.1}, []float64{c.equal, nan, c.equal, c.equal}},
			{"nobody", []float64{nan, math.Inf(1), math.Inf(-1)}, []float64{nan, nan, nan}},
		} {
			got := estimate(t, c.name, c.params, g.rewards)
			for i := range got { // exactly: a rounding error that is divided by eps is no longer small
				if len(got) != len(g.advantages) ||
					got[i] != g.advantages[i] && !(math.IsNaN(got[i]) && math.IsNaN(g.advantages[i])) {
					t.Errorf("%s %v of %s: got %v, want %v", c.name, c.params, g.what, got, g.advantages)
					break
				}
			}
		}
	}
	for _, name := range Names() {
		if !covered[name] {
			t.Errorf("nobody said what %s makes of such groups", name)
		}
	}
}

// A member without a reward changes nothing for the others.
func TestMembersWithoutARewardDoNotCount(t *testing.T) {
	for _, name := range Names() {
		straight := estimate(t, name, nil, []float64{1, 0, 0.5})
		got := estimate(t, name, nil, []float64{nan, 1, math.Inf(1), 0, 0.5})
		near(t, name, got, []float64{nan, straight[0], nan, straight[1], straight[2]})
	}
}

func TestUnusualGroups(t *testing.T) {
	near(t, "a lone success is not divided, the others are", estimate(t, "leave_one_out", nil, []float64{1, 0, 0}),
		[]float64{1, -0.707106, -0.707106})
	near(t, "two members leave no deviation", estimate(t, "leave_one_out", nil, []float64{1, 0}), []float64{1, -1})
	near(t, "a lone success at 0.1", estimate(t, "leave_one_out", nil, []float64{1, 0.1, 0.1, 0.1})[:1], []float64{0.9})
	near(t, "no success", estimate(t, "maxrl", nil, []float64{0, 0}), []float64{0, 0})
	near(t, "a mean below 0", estimate(t, "maxrl", nil, []float64{-1, 0.5}), []float64{-1, 1})
	for _, name := range Names() {
		for _, a := range estimate(t, name, map[string]any{}, []float64{math.MaxFloat64, -math.MaxFloat64, 0, 1e-320}) {
			if !Scored(a) {
				t.Errorf("%s makes %g of huge and tiny rewards", name, a)
			}
		}
	}
}

func TestMistakesAreNamed(t *testing.T) {
	for _, c := range []struct {
		name   string
		params map[string]any
		want   []string
	}{
		{"ppo", nil, []string{`"ppo"`, "mean_centred, std_normalised, rloo"}},
		{"", nil, []string{`""`, "rae"}},
		{"std_normalised", map[string]any{"epsilon": 1e-6},
			[]string{"std_normalised", `"epsilon"`, "ddof, eps, eps_at, singleton"}},
		{"rloo", map[string]any{"eps": 1}, []string{`"eps"`, "takes none"}},
		{"std_normalised", map[string]any{"ddof": 2}, []string{"ddof", "2", "0 to 1"}},
		{"std_normalised", map[string]any{"ddof": 0.5}, []string{"ddof", "0.5", "whole"}},
		{"std_normalised", map[string]any{"ddof": "one"}, []string{"ddof", "one"}},
		{"std_normalised", map[string]any{"eps": -1e-6}, []string{"eps", "-1e-06"}},
		{"std_normalised", map[string]any{"eps": nan}, []string{"eps", "NaN"}},
		{"std_normalised", map[string]any{"eps": nil}, []string{"eps"}},
		{"std_normalised", map[string]any{"eps": true}, []string{"eps", "true"}},
		{"std_normalised", map[string]any{"eps_at": "below"}, []string{"eps_at", "below", "outside, inside, max"}},
		{"std_normalised", map[string]any{"singleton": 0}, []string{"singleton", "zero, raw"}},
		{"rae", map[string]any{"decay": 1.5}, []string{"decay", "1.5", "0 to 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := New(c.name, c.params)
			if err == nil {
				t.Errorf("%s %v was accepted", c.name, c.params)
				return
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s %v: the error does not say %q: %v", c.name, c.params, part, err)
				}
			}
		})
	}
	// A number is a number, however it was read.
	for _, one := range []any{1, int64(1), uint64(1), 1.0, json.Number("1")} {
		if _, err := New("std_normalised", map[string]any{"ddof": one}); err != nil {
			t.Errorf("%T: %v", one, err)
		}
	}
}

func TestPresets(t *testing.T) {
	want := []string{"composer2", "nemo_rl", "prime_rl", "rllm", "slime", "tinker", "trl", "trl_async", "verl"}
	if !slices.Equal(Presets(), want) {
		t.Errorf("presets %v, want %v", Presets(), want)
	}
	for _, name := range Presets() {
		estimator, params, err := Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(estimator, params); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for key := range params {
			params[key] = "changed"
		}
		if _, again, _ := Preset(name); len(again) > 0 && again["ddof"] == "changed" {
			t.Errorf("%s: who changes a preset's parameters changes the preset", name)
		}
	}
	// Where verl and rLLM keep the reward of a group of one, slime and TRL have
	// nothing to compare it with.
	for name, advantage := range map[string]float64{"verl": 1, "rllm": 1, "slime": 0, "trl": 0, "trl_async": 0,
		"nemo_rl": 0, "prime_rl": 0} {
		estimator, params, _ := Preset(name)
		near(t, name, estimate(t, estimator, params, []float64{1}), []float64{advantage})
	}
	if _, _, err := Preset("grpo"); err == nil || !strings.Contains(err.Error(), "trl_async") {
		t.Errorf("an unknown preset: %v", err)
	}
}

// A run file knows the names that this package implements.
func TestNamesOfRunFiles(t *testing.T) {
	if !slices.Equal(Names(), runfile.Estimators) {
		t.Errorf("run files know %v, implemented are %v", runfile.Estimators, Names())
	}
	for _, info := range Estimators() {
		if info.Formula == "" {
			t.Errorf("%s has no formula", info.Name)
		}
		for _, p := range info.Parameters {
			if _, err := New(info.Name, map[string]any{p.Name: p.Default}); err != nil {
				t.Errorf("%s: the default of %s is refused: %v", info.Name, p.Name, err)
			}
		}
	}
}

func TestShuffleKeepsRewards(t *testing.T) {
	rewards := []float64{1, 2, 3, 4, 5, 6, 7, 8}
	moved := false
	for seed := range uint64(20) {
		got := Shuffle(rewards, seed)
		if !slices.Equal(got, Shuffle(rewards, seed)) {
			t.Fatalf("seed %d: two shuffles differ", seed)
		}
		moved = moved || !slices.Equal(got, rewards)
		slices.Sort(got)
		if !slices.Equal(got, rewards) {
			t.Fatalf("seed %d: rewards were lost: %v", seed, got)
		}
	}
	if !moved {
		t.Error("no seed moved anything")
	}
}

// TestMaxRLOfNegativeRewards: wherever rewards lie, the better member has the larger advantage, and
// none grows without bound.
func TestMaxRLOfNegativeRewards(t *testing.T) {
	for name, rewards := range map[string][]float64{
		"a mean just above 0": {1, -0.999999999},
		"a mean of 0":         {1, -1},
		"a mean below 0":      {1, -1, -1, -1},
		"all below 0":         {-1, -3, -2},
		"tiny":                {1e-300, 0, 0},
		"huge":                {1e9, -1e9, 0},
	} {
		t.Run(name, func(t *testing.T) {
			advantages := estimate(t, "maxrl", nil, rewards)
			for i := range rewards {
				if !(math.Abs(advantages[i]) <= float64(len(rewards)-1)+1e-9) {
					t.Errorf("%s: advantage %g of %d members", name, advantages[i], len(rewards))
				}
				for j := range rewards {
					if rewards[i] > rewards[j] && !(advantages[i] > advantages[j]) {
						t.Errorf("%s: rewards %v have the advantages %v", name, rewards, advantages)
					}
				}
			}
		})
	}
	near(t, "equal rewards below 0", estimate(t, "maxrl", nil, []float64{-2, -2}), []float64{0, 0})
}
