package advantage

import "math"

// Whitening says how Whiten divides.
type Whitening struct {
	DDOF int     // the variance divides by the tokens − DDOF
	Eps  float64 // is added to the variance
}

// Whiten is A_i = (a_i − μ) / √(σ² + eps) over all sampled tokens of a batch, each of which carries
// its rollout's a_i: with n_i sampled tokens, N = Σ n_i, μ = Σ n_i·a_i / N and σ² = Σ n_i·(a_i −
// μ)² / (N − ddof). It is the batch normalisation of REINFORCE++ (Hu et al. 2025,
// arXiv:2501.03262), as verl whitens over the response mask (ddof 1, eps 1e-8). Rollouts of no
// tokens or without an advantage (NaN) do not count; they are normalised with the others' figures,
// and stay NaN. Where all tokens agree, all get 0.
func Whiten(advantages []float64, sampledTokens []int, w Whitening) []float64 {
	var total, mean, squares float64
	least, most := math.Inf(1), math.Inf(-1)
	weigh := func(add func(n, a float64)) {
		for i, a := range advantages {
			if n := sampledTokens[i]; n > 0 && Scored(a) {
				add(float64(n), a)
			}
		}
	}
	weigh(func(n, a float64) { total += n; least, most = min(least, a), max(most, a) })
	white := make([]float64, len(advantages))
	if total > 0 && least < most {
		weigh(func(n, a float64) { mean += float64(n / total * a) })
		weigh(func(n, a float64) { squares += float64(n * (a - mean) * (a - mean)) })
	}
	divisor := math.Sqrt(squares/(total-float64(w.DDOF)) + w.Eps)
	for i, a := range advantages {
		switch {
		case !Scored(a):
			white[i] = math.NaN()
		case total > float64(w.DDOF) && least < most && divisor > 0:
			if v := (a - mean) / divisor; Scored(v) { // else it overflows and says nothing: 0
				white[i] = v
			}
		}
	}
	return white
}

// ReinforcePlusPlusBaseline is A_i = r_i − mean(r) within the group, to be whitened over the batch
// by [Whiten]: the baseline variant of REINFORCE++ (arXiv:2501.03262 §3), as verl's
// "reinforce_plus_plus_baseline", whose group of one keeps its raw reward (singleton "raw"). A
// group of equal rewards gets 0 before the batch is whitened.
func ReinforcePlusPlusBaseline(rewards []float64, singleton string) []float64 {
	return overScored(rewards, func(rewards []float64) []float64 {
		if len(rewards) == 1 && singleton == SingletonRaw {
			return rewards
		}
		return centred(rewards)
	})
}

// Raw is A_i = r_i, REINFORCE++ before its batch is whitened by [Whiten]: no group is compared
// within itself, so a group of one and a group of equal rewards are like any other.
func Raw(rewards []float64) []float64 {
	return overScored(rewards, func(rewards []float64) []float64 { return rewards })
}
