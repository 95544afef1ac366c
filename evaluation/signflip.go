package evaluation

import (
	"math"
	"math/rand/v2"
	"slices"
)

// exactFlips: up to so many differences the test tries all 2ⁿ flips.
const exactFlips = 16

// signFlip is the p-value of the two-sided permutation test of paired differences (Fisher's
// randomisation test of 1935): were the two sides exchangeable on each task, every sign would be as
// likely as its opposite, and p is the part of all flips whose sum is as far from 0 as the observed
// one or farther. Differences of 0 change no sum. Of more than 16 others the flips are drawn, and p
// is (hits + 1) / (draws + 1), which is never 0 and holds its level (Phipson and Smyth 2010,
// arXiv:1603.05766). mid is the mid-p-value. It is a test of tasks: what one task's attempts
// scatter is in its difference.
func signFlip(differences []float64, o Options) (p, mid float64, exact bool) {
	d := slices.DeleteFunc(slices.Clone(differences), func(v float64) bool { return tie(v) })
	var size float64
	for _, v := range d {
		size += math.Abs(v)
	}
	// sums of another order of the same terms are as far
	observed, farther := math.Abs(sum(d))-1e-9*size, math.Abs(sum(d))+1e-9*size
	if len(d) <= exactFlips {
		flips := uint64(1) << len(d)
		p = float64(reaching(d, 0, observed)) / float64(flips)
		return p, (p + float64(reaching(d, 0, farther))/float64(flips)) / 2, true
	}
	rng := rand.New(rand.NewPCG(uint64(o.Seed), 0x666c6970))
	hits, beyond := 0, 0
	for range o.Resamples {
		far := math.Abs(flipped(d, rng))
		if far >= observed {
			hits++
		}
		if far >= farther {
			beyond++
		}
	}
	p = float64(hits+1) / float64(o.Resamples+1)
	return p, (p + float64(beyond+1)/float64(o.Resamples+1)) / 2, false
}

// reaching counts the choices of signs of d for which so far + Σ ±d is as far from 0 as bound.
func reaching(d []float64, soFar, bound float64) int {
	if len(d) == 0 {
		if math.Abs(soFar) >= bound {
			return 1
		}
		return 0
	}
	return reaching(d[1:], soFar+d[0], bound) + reaching(d[1:], soFar-d[0], bound)
}

// flipped is the sum of d with signs drawn at random.
func flipped(d []float64, rng *rand.Rand) (total float64) {
	var bits uint64
	for i, v := range d {
		if i%64 == 0 {
			bits = rng.Uint64()
		}
		total += v * (1 - 2*float64(bits&1))
		bits >>= 1
	}
	return total
}

// tie: the difference is a rounding error.
func tie(difference float64) bool { return math.Abs(difference) < 1e-12 }
