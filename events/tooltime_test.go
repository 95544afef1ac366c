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
		Tools: ToolAnswers{
			{Turn: 0, Results: []ToolResult{call(0, time.Hour)}},
			{Turn: 1, Results: []ToolResult{call(0, 20*time.Second), call(time.Second, 30*time.Second)}},
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

// TestToolTimeOfFold: a folded rollout has the same time left as one that is put together.
func TestToolTimeOfFold(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := Rollout{}
	r.Begin(RolloutCopied{Turns: []TurnSampled{{Turn: 0}}, Tools: []ToolsCompleted{{Turn: 0, Results: []ToolResult{{StartedAt: at, DurationMS: 3.6e6}}}}})
	for turn := 1; turn < 4; turn++ {
		sampled, err := New("r", TurnSampledType, "g000001-0", Ordinal(turn), TurnSampled{Turn: turn})
		if err != nil {
			t.Fatal(err)
		}
		completed, err := New("r", ToolsCompletedType, "g000001-0", Ordinal(turn), ToolsCompleted{Turn: turn, Results: []ToolResult{{StartedAt: at, DurationMS: 5000}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Extend([]Event{sampled, completed}); err != nil {
			t.Fatal(err)
		}
		plain := Rollout{Turns: r.Turns, Tools: r.Tools, Copied: r.Copied}
		limits := runfile.Limits{Timeout: runfile.Duration(2 * time.Minute)}
		if got, want := r.ToolTimeLeft(limits), time.Minute-time.Duration(turn)*5*time.Second; got != want || got != plain.ToolTimeLeft(limits) {
			t.Errorf("turn %d: %v left, not %v (%v)", turn, got, want, plain.ToolTimeLeft(limits))
		}
	}
}
