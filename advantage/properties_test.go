package advantage

import (
	"math"
	"math/rand/v2"
	"testing"
)

// properties are what each formula promises. An eps in a divisor is small against the
// deviations of these rewards.
var properties = map[string]struct {
	permutation bool // permuted members have the same advantages
	shift       bool // adding a number to all rewards changes nothing
	invariant   bool // multiplying all rewards by a positive number changes nothing
	equivariant bool // … multiplies the advantages
	sumsToZero  bool
}{
	"mean_centred":                 {permutation: true, shift: true, equivariant: true, sumsToZero: true},
	"std_normalised":               {permutation: true, shift: true, invariant: true, sumsToZero: true},
	"rloo":                         {permutation: true, shift: true, equivariant: true, sumsToZero: true},
	"maxrl":                        {permutation: true, invariant: true, sumsToZero: true},
	"leave_one_out":                {permutation: true, shift: true, invariant: true},
	"reinforce_plus_plus":          {permutation: true, equivariant: true},
	"reinforce_plus_plus_baseline": {permutation: true, shift: true, equivariant: true, sumsToZero: true},
	"rae":                          {equivariant: true}, // each member moves the next one's baseline
}

func TestProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, name := range Names() {
		p, ok := properties[name]
		if !ok {
			t.Errorf("%s: nobody said what it promises", name)
		}
		for range 200 {
			rewards := make([]float64, 3+rng.IntN(14))
			for i := range rewards {
				rewards[i] = float64(rng.IntN(5)) / 2
			}
			// leave-one-out does not divide by what no deviation gives
			rewards[0], rewards[1], rewards[2] = 0.25, 1.75, 3
			straight := estimate(t, name, nil, rewards)
			order := rng.Perm(len(rewards))
			by := 0.5 + rng.Float64()*8
			transformed := func(change func(float64) float64) []float64 {
				changed := make([]float64, len(rewards))
				for i, r := range rewards {
					changed[i] = change(r)
				}
				return estimate(t, name, nil, changed)
			}
			var permuted, want []float64
			for _, i := range order {
				permuted, want = append(permuted, rewards[i]), append(want, straight[i])
			}
			holds(t, name, "permutation equivariance", p.permutation, estimate(t, name, nil, permuted), want)
			holds(t, name, "shift invariance", p.shift,
				transformed(func(r float64) float64 { return r + by }), straight)
			holds(t, name, "scale invariance", p.invariant,
				transformed(func(r float64) float64 { return r * by }), straight)
			want = nil
			for _, a := range straight {
				want = append(want, a*by)
			}
			holds(t, name, "scale equivariance", p.equivariant,
				transformed(func(r float64) float64 { return r * by }), want)
			holds(t, name, "sum of 0", p.sumsToZero, []float64{Mean(straight)}, []float64{0})
		}
	}
}

// TestPropertiesOfTheBatch: whitening over a batch takes shift and scale away, and its tokens
// have mean 0 and deviation 1.
func TestPropertiesOfTheBatch(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		n := 2 + rng.IntN(30)
		advantages, tokens, changed := make([]float64, n), make([]int, n), make([]float64, n)
		by, shift := 0.5+rng.Float64()*8, rng.Float64()*10-5
		for i := range n {
			advantages[i], tokens[i] = float64(i%3)+rng.Float64(), 1+rng.IntN(50)
			changed[i] = advantages[i]*by + shift
		}
		w := Whitening{DDOF: 1}
		white := Whiten(advantages, tokens, w)
		holds(t, "whitening", "shift and scale invariance", true, Whiten(changed, tokens, w), white)
		var total, sum, squares float64
		for i, a := range white {
			k := float64(tokens[i])
			total, sum, squares = total+k, sum+k*a, squares+k*a*a
		}
		holds(t, "whitening", "mean and variance", true, []float64{sum / total, squares / (total - 1)}, []float64{0, 1})
	}
}

func holds(t *testing.T, name, property string, promised bool, got, want []float64) {
	t.Helper()
	for i := range got {
		if promised && !(math.Abs(got[i]-want[i]) <= 1e-4*max(1, math.Abs(want[i]))) {
			t.Fatalf("%s breaks its %s: %v, want %v", name, property, got, want)
		}
	}
}
