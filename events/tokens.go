package events

import (
	"fmt"
	"math"
	"slices"
)

// AddTokens adds counts of tokens. Servers and outsiders say what they like: a negative
// count is none, and a sum that does not fit stays at the largest one, so that no bound is
// passed by going around it.
func AddTokens(a, b int64) int64 {
	a, b = max(0, a), max(0, b)
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// BytesPerToken is the estimate that stands for a count of tokens that nobody gives: of code and
// prose a token has three to five bytes.
const BytesPerToken = 4

// EstimatedTokens are those of so many bytes of text, by BytesPerToken.
func EstimatedTokens(bytes int) int { return (bytes + BytesPerToken - 1) / BytesPerToken }

// Estimate counts the tokens of a turn whose server did not, by the bytes of what it was asked.
func (t *TurnSampled) Estimate(asked int) {
	if t.PromptTokens == 0 && asked > 0 {
		t.PromptTokens, t.TokensEstimated = EstimatedTokens(asked), true
	}
	if said := t.saidBytes(); t.CompletionTokens == 0 && said > 0 {
		t.CompletionTokens, t.TokensEstimated = EstimatedTokens(said), true
	}
}

func (t *TurnSampled) saidBytes() int {
	n := len(t.Content)
	if t.Reasoning != nil {
		n += len(t.Reasoning.Text)
	}
	for _, c := range t.ToolCalls {
		n += len(c.Name) + len(c.Arguments)
	}
	return n
}

// Used are the tokens of the turn, those of its prompt and those that it sampled. Of one that
// ran elsewhere and counts none they are those of its own text, estimated, so that no bound is
// passed by leaving counts out.
func (t TurnSampled) Used() int {
	if t.PromptTokens <= 0 && t.CompletionTokens <= 0 {
		asked := BytesPerToken * len(t.PromptDelta)
		for _, m := range t.Prompt {
			asked += len(m.Content)
		}
		t.Estimate(asked)
		t.CompletionTokens = max(t.CompletionTokens, len(t.TokenIDs))
	}
	return int(min(AddTokens(int64(t.PromptTokens), int64(t.CompletionTokens)), math.MaxInt))
}

// RoomText tells a model how much of its context its conversation takes,
// before what follows behind it.
func RoomText(used, limit int) string {
	return fmt.Sprintf("[Before this result, %d of %d tokens of your context were used.]", used, limit)
}

// ShownResults are a turn's tool results as the model sees them: the last one ends with RoomTold.
func (t *TurnSampled) ShownResults(results []ToolResult) []ToolResult {
	if t.RoomTold == "" || len(results) == 0 {
		return results
	}
	told := slices.Clone(results)
	last := &told[len(told)-1]
	if last.Content != "" {
		last.Content += "\n\n"
	}
	last.Content += t.RoomTold
	return told
}

// LogprobGap is how far a trainer's own log-probabilities d_t of a batch's sampled tokens are from
// the sampler's s_t, over the tokens that were sampled by the policy version whose weights the
// trainer has: on these both should be equal. Tokens of other versions differ by what was trained
// between, and are left out.
type LogprobGap struct {
	// MeanAbs and MaxAbs are the mean and the largest of |d_t − s_t|, in nats.
	MeanAbs float64 `json:"mean_abs" jsonschema:"minimum=0,maximum=1000000"`
	MaxAbs  float64 `json:"max_abs" jsonschema:"minimum=0,maximum=1000000"`
	// KL estimates the divergence of the sampler's distribution from the trainer's, KL(sampler ‖
	// trainer): the mean of r_t − 1 − ln r_t with r_t = exp(d_t − s_t). It is the estimator k3 of
	// J. Schulman, "Approximating KL Divergence" (2020), http://joschu.net/blog/kl-approx.html,
	// which is never negative. d_t − s_t is cut to ±20 in it, so that no token makes it infinite.
	KL float64 `json:"kl" jsonschema:"minimum=0,maximum=1000000000"`
	// Tokens is how many tokens were compared.
	Tokens int64 `json:"tokens" jsonschema:"minimum=1"`
}

// gapRounding is how far a mean may exceed the largest by the rounding of single precision.
const gapRounding = 1e-6

// Check says what cannot be true of a gap in a batch with that many sampled tokens.
func (g LogprobGap) Check(sampled int64) error {
	switch {
	case g.Tokens > sampled:
		return fmt.Errorf("logprob_gap.tokens %d: the batch has only %d sampled tokens", g.Tokens, sampled)
	case g.MeanAbs > g.MaxAbs+float64(gapRounding*g.MaxAbs):
		return fmt.Errorf("logprob_gap.mean_abs %g: a mean cannot exceed the largest, max_abs %g", g.MeanAbs, g.MaxAbs)
	}
	return nil
}
