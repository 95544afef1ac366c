package runfile

import (
	"strings"
	"testing"
	"time"
)

// TestTurnTimeouts: each bound has an honest default, and one that another would never let
// strike is refused by name.
func TestTurnTimeouts(t *testing.T) {
	const hour, minute, second = Duration(time.Hour), Duration(time.Minute), Duration(time.Second)
	for name, c := range map[string]struct {
		set, want TurnTimeout
		wrong     string
	}{
		"nothing":           {TurnTimeout{}, TurnTimeout{hour, 0, hour}, ""},
		"a short turn":      {TurnTimeout{Whole: minute}, TurnTimeout{minute, 0, minute}, ""},
		"a long turn":       {TurnTimeout{Whole: 3 * hour}, TurnTimeout{3 * hour, 0, 3 * hour}, ""},
		"a long first byte": {TurnTimeout{FirstByte: 2 * hour}, TurnTimeout{2 * hour, 0, 2 * hour}, ""},
		"a silent answer": {TurnTimeout{BetweenBytes: second, FirstByte: minute},
			TurnTimeout{minute, second, hour}, ""},
		"below nothing": {TurnTimeout{Whole: -second}, TurnTimeout{},
			"limits.turn_timeout.whole -1s: must be 0 to"},
		"longer than the whole": {TurnTimeout{FirstByte: hour, Whole: minute}, TurnTimeout{},
			"first_byte 1h0m0s: must be at most limits.turn_timeout.whole (1m0s)"},
		"longer than its answer": {TurnTimeout{BetweenBytes: hour, Whole: minute}, TurnTimeout{},
			"between_bytes 1h0m0s: must be at most limits.turn_timeout.whole (1m0s)"},
		"longer than a rollout": {TurnTimeout{Whole: 5 * hour}, TurnTimeout{},
			"limits.turn_timeout.whole 5h0m0s: must be at most limits.timeout (4h0m0s)"},
		"longer than a day": {TurnTimeout{FirstByte: 25 * hour}, TurnTimeout{},
			"limits.turn_timeout.first_byte 25h0m0s: must be 0 to 24h0m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultRunConfig()
			cfg.Policy, cfg.Endpoint, cfg.External = "p", BuiltinEndpoint, true
			cfg.Limits.Timeout, cfg.Limits.TurnTimeout = 4*hour, c.set
			switch err := cfg.Validate(); {
			case c.wrong == "" && err != nil:
				t.Error(err)
			case c.wrong == "" && cfg.Limits.TurnTimeouts() != c.want:
				t.Errorf("%+v", cfg.Limits.TurnTimeouts())
			case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
				t.Errorf("refused with %v, want %q", err, c.wrong)
			}
		})
	}
}
