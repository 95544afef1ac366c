package advantage

// Length is how long a rollout was, in what a length penalty counts.
type Length struct {
	Output int `json:"output"` // tokens that the model sampled
	Input  int `json:"input"`  // the other tokens
	Turns  int `json:"turns"`
}

// LengthWeights are the weights of LinearLengthPenalty.
type LengthWeights struct{ Output, Input, Turns float64 }

// LinearLengthPenalty is what each member of a group loses:
//
//	mean(r) · (w_out·out_i/max(out) + w_in·in_i/max(in) + w_turns·turns_i/max(turns))
//
// the linear length penalty of prime-rl (orchestrator/algo/grpo.py). A maximum of 0 adds nothing.
// A mean below 0, of which prime-rl does not think, takes nothing away: by the formula the
// longest member would gain most.
func LinearLengthPenalty(rewards []float64, lengths []Length, w LengthWeights) []float64 {
	var longest Length
	for _, l := range lengths {
		longest = Length{max(longest.Output, l.Output), max(longest.Input, l.Input), max(longest.Turns, l.Turns)}
	}
	share := func(weight float64, n, most int) float64 {
		if most <= 0 {
			return 0
		}
		return weight * float64(n) / float64(most)
	}
	mean := max(0, Mean(rewards))
	penalties := make([]float64, len(rewards))
	for i, l := range lengths {
		penalties[i] = float64(mean * (share(w.Output, l.Output, longest.Output) +
			share(w.Input, l.Input, longest.Input) + share(w.Turns, l.Turns, longest.Turns)))
	}
	return penalties
}

// SoftOverlong is what a rollout of n sampled tokens is given: 0 up to most − buffer, then linearly
// down to −factor at most and beyond: the soft overlong punishment of DAPO (Yu et al. 2025,
// arXiv:2503.14476, equation 13).
func SoftOverlong(n, most, buffer int, factor float64) float64 {
	switch {
	case n <= most-buffer:
		return 0
	case n < most:
		return -factor * float64(n-(most-buffer)) / float64(buffer)
	}
	return -factor
}
