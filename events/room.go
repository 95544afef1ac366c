package events

import (
	"fmt"
	"slices"
)

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
