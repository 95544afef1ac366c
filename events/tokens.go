package events

import (
	"fmt"
	"math"
	"slices"
)

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

// RoomText tells a model how much of its context its conversation takes, before what follows behind it.
func RoomText(used, limit int) string {
	return fmt.Sprintf("[Before this result, %d of %d tokens of your context were used.]", used, limit)
}

// Told are a turn's tool results as the model sees them: the last one ends with RoomTold.
func (t *TurnSampled) Told(results []ToolResult) []ToolResult {
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
