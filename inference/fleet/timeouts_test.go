package fleet

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
)

// TestTurnTakesAsLongAsTheRunSays: an answer that comes after 40 minutes, and one that comes a byte
// a minute, are turns. Where a limit of the run strikes, the error says which.
func TestTurnTakesAsLongAsTheRunSays(t *testing.T) {
	const hour, minute = runfile.Duration(time.Hour), runfile.Duration(time.Minute)
	for name, c := range map[string]struct {
		limits runfile.TurnTimeout
		says   reply
		struck string // "" where the turn is sampled
		after  time.Duration
	}{
		"after 40 minutes": {runfile.TurnTimeout{}, reply{takes: 40 * time.Minute}, "", 40 * time.Minute},
		"a byte a minute": {runfile.TurnTimeout{Whole: 4 * hour}, reply{drips: time.Minute}, "",
			time.Duration(len(whole)+1) * time.Minute},
		"a byte a minute, an hour": {runfile.TurnTimeout{}, reply{drips: time.Minute},
			"within 1h0m0s, which is limits.turn_timeout.whole", time.Hour},
		"hung": {runfile.TurnTimeout{}, reply{takes: 24 * time.Hour},
			"within 1h0m0s, which is limits.turn_timeout.", time.Hour},
		"a first byte that is late": {runfile.TurnTimeout{FirstByte: 5 * minute}, reply{takes: 6 * time.Minute},
			"within 5m0s, which is limits.turn_timeout.first_byte", 5 * time.Minute},
		"silence within an answer": {runfile.TurnTimeout{}, reply{drips: 3 * time.Minute},
			"within 2m0s, which is limits.turn_timeout.between_bytes", 2 * time.Minute},
		"silence that the run allows": {runfile.TurnTimeout{Whole: 24 * hour, BetweenBytes: 4 * minute},
			reply{drips: 3 * time.Minute}, "", 3 * time.Duration(len(whole)+1) * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				servers, farm := newFarm(t, map[string]func(int, time.Duration) reply{"a": always(c.says)}, nil)
				ask := call("r", 4, "a")
				ask.Config.Limits.TurnTimeout = c.limits
				answer, err := servers.Complete(t.Context(), ask)
				if took := time.Since(farm.began); took != c.after {
					t.Errorf("after %s, want %s", took, c.after)
				}
				var f *inference.Failure
				switch {
				case c.struck == "" && (err != nil || answer.Turn.Content != "a"):
					t.Errorf("no turn: %v", err)
				case c.struck != "" &&
					(!errors.As(err, &f) || !f.Timeout() || outcomeOf(f) != failing ||
						!strings.Contains(f.Error(), c.struck)):
					t.Errorf("failed with %v, want %q", err, c.struck)
				}
			})
		})
	}
}
