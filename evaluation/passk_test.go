package evaluation

import (
	"math"
	"math/big"
	"math/bits"
	"testing"
)

// TestPassAtKOfAllSubsets counts, for small n, the subsets of k attempts that hold one of c passes.
func TestPassAtKOfAllSubsets(t *testing.T) {
	for n := 1; n <= 12; n++ {
		for c := 0; c <= n; c++ {
			for k := 1; k <= n; k++ {
				all, hits := 0, 0
				for subset := range uint(1) << n {
					if bits.OnesCount(subset) != k {
						continue
					}
					all++
					if subset&(1<<c-1) != 0 {
						hits++
					}
				}
				if got, want := PassAtK(n, c, k), float64(hits)/float64(all); math.Abs(got-want) > 1e-12 {
					t.Errorf("pass@%d of %d attempts with %d passes: %g, want %g", k, n, c, got, want)
				}
			}
		}
	}
}

// TestPassAtKOfMany is 1 − C(n−c, k) / C(n, k) in whole numbers of any length,
// where factorials overflow.
func TestPassAtKOfMany(t *testing.T) {
	for _, c := range [][3]int{{200, 1, 100}, {200, 10, 1}, {200, 10, 100}, {200, 3, 10},
		{1000, 17, 128}, {20_000, 5, 10_000}} {
		n, passed, k := c[0], c[1], c[2]
		var none, all big.Int
		none.Binomial(int64(n-passed), int64(k))
		all.Binomial(int64(n), int64(k))
		want, _ := new(big.Rat).Sub(big.NewRat(1, 1), new(big.Rat).SetFrac(&none, &all)).Float64()
		if got := PassAtK(n, passed, k); math.Abs(got-want) > 1e-10*want {
			t.Errorf("pass@%d of %d attempts with %d passes: %.15g, want %.15g", k, n, passed, got, want)
		}
	}
}

// TestPassAtKEdges: what has no such draw has no pass@k.
func TestPassAtKEdges(t *testing.T) {
	for _, c := range [][3]int{{3, 1, 4}, {3, 1, 0}, {3, 4, 1}, {3, -1, 1}, {0, 0, 1}} {
		if got := PassAtK(c[0], c[1], c[2]); !math.IsNaN(got) {
			t.Errorf("pass@%d of %d attempts with %d passes: %g", c[2], c[0], c[1], got)
		}
	}
	if got := PassAtK(5, 0, 5); got != 0 {
		t.Errorf("no pass: %g", got)
	}
	if got := PassAtK(5, 1, 5); got != 1 {
		t.Errorf("all attempts drawn, one passed: %g", got)
	}
}

// TestPassAtKIsUnbiased: over all outcomes of n attempts that pass with probability p the
// estimate's mean is 1 − (1−p)ᵏ, which the plug-in 1 − (1 − c/n)ᵏ is not.
func TestPassAtKIsUnbiased(t *testing.T) {
	for _, p := range []float64{0.01, 0.3, 0.8} {
		for _, k := range []int{1, 3, 10} {
			const n = 10
			var mean, plugin float64
			for c := 0; c <= n; c++ {
				ways, _ := new(big.Float).SetInt(new(big.Int).Binomial(n, int64(c))).Float64()
				chance := ways * math.Pow(p, float64(c)) * math.Pow(1-p, float64(n-c))
				mean += chance * PassAtK(n, c, k)
				plugin += chance * (1 - math.Pow(1-float64(c)/n, float64(k)))
			}
			want := 1 - math.Pow(1-p, float64(k))
			if math.Abs(mean-want) > 1e-12 {
				t.Errorf("pass@%d at p = %g: mean %g, want %g", k, p, mean, want)
			}
			if k > 1 && math.Abs(plugin-want) < 1e-5 {
				t.Errorf("pass@%d at p = %g: this test cannot tell the plug-in %g from %g", k, p, plugin, want)
			}
		}
	}
}
