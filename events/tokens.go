package events

import "math"

// AddTokens adds counts of tokens. Servers and outsiders say what they like: a negative count is none, and a sum that does not fit stays at
// the largest one, so that no bound is passed by going around it.
func AddTokens(a, b int64) int64 {
	a, b = max(0, a), max(0, b)
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Used are the tokens of the turn, those of its prompt and those that it sampled.
func (t TurnSampled) Used() int {
	return int(min(AddTokens(int64(t.PromptTokens), int64(t.CompletionTokens)), math.MaxInt))
}
