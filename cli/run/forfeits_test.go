package run

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestForfeitsAreShown: who looks at a run sees how many rollouts were forfeited, and why.
func TestForfeitsAreShown(t *testing.T) {
	t.Parallel()
	r := clitest.NewRecorded(t)
	show := func() string {
		t.Helper()
		output, err := clitest.Run(t, New, "run", "show", "first", "--dir", r.Dir)
		if err != nil {
			t.Fatal(err)
		}
		return output
	}
	classes := []string{"", verifier.ClassMemory, verifier.ClassTimeout, verifier.ClassTimeout, ""}
	for i, class := range classes {
		if i == 1 && strings.Contains(show(), "forfeits") {
			t.Error("a run without forfeits speaks of them")
		}
		id := events.RolloutID("g000001", i)
		servicetest.StartRollout(t, r.Log, "first", id, "fix-a")
		if i == len(classes)-1 {
			break // it has no reward yet
		}
		scored := events.RolloutScored{}
		if class != "" {
			scored.Forfeit = &events.Forfeit{Class: class}
		}
		r.State(events.RolloutScoredType, id, "0", scored)
	}
	if output := show(); !strings.Contains(output, "\nforfeits: 3 of 4 scored rollouts (timeout 2, oom 1)\n") {
		t.Errorf("run show: %s", output)
	}
	output, err := clitest.Run(t, New, "run", "show", "first", "--json", "--dir", r.Dir)
	var s RunSummary
	if err != nil || json.Unmarshal([]byte(output), &s) != nil || s.Forfeits == nil || s.Forfeits.Scored != 4 ||
		!maps.Equal(s.Forfeits.Classes, map[string]int{"timeout": 2, "oom": 1}) {
		t.Errorf("run show --json: %v: %s", err, output)
	}
}
