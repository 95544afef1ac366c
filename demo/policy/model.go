package policy

import "math"

// Model is a log-linear policy: the logit of a candidate is a fixed offset plus the sum of the
// weights of its features, and a decision is drawn from the softmax over the candidates. A Model is
// not changed once it serves.
type Model struct {
	Weights []float32 // Dimension values
}

// NewModel is the initial policy: all weights zero, so only the fixed,
// nearly uniform offsets speak.
func NewModel() *Model { return &Model{Weights: make([]float32, Dimension)} }

// logProbabilities of the candidates, into out.
func (m *Model) logProbabilities(candidates []candidate, out []float64) []float64 {
	out = out[:0]
	highest := math.Inf(-1)
	for i := range candidates {
		logit := candidates[i].offset
		for _, f := range candidates[i].features {
			logit += float64(m.Weights[f.index]) * float64(f.value)
		}
		highest = max(highest, logit)
		out = append(out, logit)
	}
	return normalise(out, highest)
}

// normalise turns logits into log-probabilities in place; highest is their maximum.
func normalise(logits []float64, highest float64) []float64 {
	sum := 0.0
	for _, logit := range logits {
		sum += math.Exp(logit - highest)
	}
	total := highest + math.Log(sum)
	for i := range logits {
		logits[i] -= total
	}
	return logits
}
