package advantage

import (
	"math"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
)

// The group of eight with three successes is the usual reference; the figures follow from the formulas in
// verl's core_algos.py (ddof 1, epsilon 1e-6) and prime-rl's grpo.py (mean-centred).
func TestGoldenGroup(t *testing.T) {
	rewards := []float64{1, 1, 1, 0, 0, 0, 0, 0}
	for name, want := range map[string]struct{ success, failure float64 }{
		"mean_centred":   {0.625, -0.375},
		"std_normalised": {1.207612, -0.724567},
	} {
		estimate, err := ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		got := estimate(rewards)
		for i, a := range got {
			w := want.failure
			if rewards[i] == 1 {
				w = want.success
			}
			if math.Abs(a-w) > 1e-6 {
				t.Errorf("%s: member %d: got %.6f, want %.6f", name, i, a, w)
			}
		}
	}
}

func TestEdges(t *testing.T) {
	for _, name := range events.Estimators {
		estimate, err := ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		for label, rewards := range map[string][]float64{"none": {}, "one": {0.7}, "all equal": {0.5, 0.5, 0.5}} {
			for i, a := range estimate(rewards) {
				if a != 0 {
					t.Errorf("%s of %s: member %d: got %g, want 0", name, label, i, a)
				}
			}
		}
	}
	if _, err := ByName("ppo"); err == nil {
		t.Error("an unknown estimator was found")
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
