package advantage

// Span gives a reward of its own to some of the sampled tokens of a turn, Start
// counted from the first of them.
type Span struct {
	Start, Length int
	Reward        float64
}

// Tokens are the advantages of a turn's n sampled tokens: A_t = base + weight · Σ reward of the
// spans over t. Base is the rollout's advantage. Tokens outside the turn are ignored, and so are
// rewards that are not finite.
func Tokens(base float64, n int, spans []Span, weight float64) []float64 {
	advantages := make([]float64, n)
	for t := range advantages {
		advantages[t] = base
	}
	for _, s := range spans {
		bonus := float64(weight * s.Reward)
		start := max(0, s.Start)
		if s.Length <= 0 || start >= n || !Scored(bonus) {
			continue
		}
		end := n
		if s.Start < 0 || s.Length < n-s.Start { // the sum cannot overflow
			end = min(n, s.Start+s.Length)
		}
		for t := start; t < end; t++ {
			advantages[t] += bonus
		}
	}
	return advantages
}
