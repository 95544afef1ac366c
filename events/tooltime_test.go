package events

import (
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
)

// TestToolTimeLeft counts calls that ran at the same time once, and nothing of a fork's origin.
func TestToolTimeLeft(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	call := func(after, took time.Duration) ToolResult {
		return ToolResult{StartedAt: at.Add(after), DurationMS: float64(took / time.Millisecond)}
	}
	r := Rollout{
		Turns: []TurnSampled{{Turn: 0}, {Turn: 1}, {Turn: 2}},
		Tools: map[int]ToolsCompleted{
			0: {Turn: 0, Results: []ToolResult{call(0, time.Hour)}},
			1: {Turn: 1, Results: []ToolResult{call(0, 20*time.Second), call(time.Second, 30*time.Second)}},
		},
		Copied: 1,
	}
	if left := r.ToolTimeLeft(runfile.Limits{Timeout: runfile.Duration(2 * time.Minute)}); left != 29*time.Second {
		t.Errorf("%v are left of a minute, of which 31 s are used", left)
	}
	r.Copied = 0
	if left := r.ToolTimeLeft(runfile.Limits{Timeout: runfile.Duration(2 * time.Minute)}); left > 0 {
		t.Errorf("%v are left behind an hour of tools", left)
	}
}
