// Package advantage holds the pure estimators that turn a group's rewards into advantages. Each is named
// after everything that distinguishes it, and its formula and source stand above it.
package advantage

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Estimator maps the rewards of one group's scored members to their advantages, in the same order.
type Estimator func(rewards []float64) []float64

// ByName finds an estimator by the name that a run file gives it.
func ByName(name string) (Estimator, error) {
	switch name {
	case "mean_centred":
		return MeanCentred, nil
	case "std_normalised":
		return StdNormalised, nil
	}
	return nil, fmt.Errorf("no advantage estimator is called %q", name)
}

// MeanCentred is A_i = r_i − mean(r): GRPO without division by the standard deviation, as in Dr. GRPO
// (Liu et al. 2025, arXiv:2503.20783), Composer 2 and prime-rl's "grpo". A group of one gets 0.
func MeanCentred(rewards []float64) []float64 {
	m := Mean(rewards)
	advantages := make([]float64, len(rewards))
	for i, r := range rewards {
		advantages[i] = r - m
	}
	return advantages
}

// stdEpsilon is added to the standard deviation, outside of the root, as verl's "grpo" does.
const stdEpsilon = 1e-6

// StdNormalised is A_i = (r_i − mean(r)) / (std(r) + 1e-6) with the sample standard deviation (ddof 1), the
// GRPO of DeepSeekMath (Shao et al. 2024, arXiv:2402.03300) as verl computes it. A group of one, whose
// deviation is undefined, gets 0.
func StdNormalised(rewards []float64) []float64 {
	advantages := MeanCentred(rewards)
	if len(rewards) < 2 {
		return advantages
	}
	var squares float64
	for _, a := range advantages {
		squares += a * a
	}
	std := math.Sqrt(squares / float64(len(rewards)-1))
	for i := range advantages {
		advantages[i] /= std + stdEpsilon
	}
	return advantages
}

// Mean is the arithmetic mean, 0 for no values.
func Mean(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// Shuffle permutes rewards among the members of a group, the same way for the same seed. It is the control
// experiment: the group keeps its rewards, but they say nothing about its members.
func Shuffle(rewards []float64, seed uint64) []float64 {
	shuffled := append([]float64(nil), rewards...)
	rng := rand.New(rand.NewPCG(seed, 0x5243))
	rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	return shuffled
}
