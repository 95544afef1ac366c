package advantage

import (
	"math"
	"math/rand/v2"
)

// overScored estimates over the members that have a reward, which is a finite number.
// The others get NaN, and do not count in anybody's mean. An advantage that overflows
// says nothing and becomes 0.
func overScored(rewards []float64, estimate func([]float64) []float64) []float64 {
	advantages := make([]float64, len(rewards))
	scored := make([]float64, 0, len(rewards))
	for i, r := range rewards {
		advantages[i] = math.NaN()
		if Scored(r) {
			scored = append(scored, r)
		}
	}
	next := estimate(scored)
	for i, r := range rewards {
		if !Scored(r) {
			continue
		}
		if advantages[i] = 0; Scored(next[0]) {
			advantages[i] = next[0]
		}
		next = next[1:]
	}
	return advantages
}

// Scored reports whether a reward is one: a finite number.
func Scored(reward float64) bool { return !math.IsNaN(reward) && !math.IsInf(reward, 0) }

// Mean is the arithmetic mean, 0 for no values. The mean of equal values is exactly that value.
func Mean(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	mean, n := values[0], float64(len(values))
	for _, v := range values { // a weighted mean all the way, so that nothing overflows
		mean += v/n - values[0]/n
	}
	return mean
}

// variance is the mean squared distance from the mean, over n − ddof.
func variance(values []float64, ddof int) float64 {
	mean := Mean(values)
	var squares float64
	for _, v := range values {
		squares += float64((v - mean) * (v - mean))
	}
	return squares / float64(len(values)-ddof)
}

// equal reports whether all values are the same. A deviation computed from them may not be 0, but a
// rounding error that is blown up by the division.
func equal(values []float64) bool {
	for _, v := range values {
		if v != values[0] {
			return false
		}
	}
	return true
}

// divided divides in place.
func divided(advantages []float64, divisor float64) []float64 {
	for i := range advantages {
		advantages[i] /= divisor
	}
	return advantages
}

// Shuffle permutes rewards among the members of a group, the same way for the same seed. It is the
// control experiment: the group keeps its rewards, but they say nothing about its members.
func Shuffle(rewards []float64, seed uint64) []float64 {
	shuffled := append([]float64(nil), rewards...)
	rng := rand.New(rand.NewPCG(seed, 0x5243))
	rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	return shuffled
}
