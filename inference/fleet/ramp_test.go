package fleet

import (
	"testing"
	"time"
)

// TestRampByAnotherClock: a simulation's requests come in as a fleet's do, one at first and
// one more with each answer.
func TestRampByAnotherClock(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	r := NewRamp(4)
	inFlight, windows := 0, []int{}
	for range 4 {
		for r.Enter(now) {
			inFlight++
		}
		windows = append(windows, inFlight)
		for ; inFlight > 0; inFlight-- {
			r.Answered(now)
		}
	}
	if want := []int{1, 2, 3, 4}; len(windows) != 4 || windows[0] != want[0] ||
		windows[1] != want[1] || windows[3] != want[3] {
		t.Errorf("windows of %v requests, want them to grow to the server's 4 slots", windows)
	}
	for range 4 {
		if !r.Enter(now) {
			t.Fatal("a warm server has fewer places than slots")
		}
	}
	if r.Enter(now) || !r.Next(now).IsZero() {
		t.Error("a full server lets a fifth request in, or promises to")
	}
}
