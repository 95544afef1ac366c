package replay

import (
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestChangedKeepsTheRules: a run that is replayed with another setting decides by the rules that it had.
func TestChangedKeepsTheRules(t *testing.T) {
	cfg := servicetest.Config("a")
	for _, rules := range []int{0, runfile.RulesNow} {
		cfg.Rules = rules
		changed, err := Changed(cfg, []string{"staleness.max=3"})
		if err != nil || changed.Rules != rules || changed.Staleness.Max != 3 || len(changed.Tasks) != 1 {
			t.Errorf("rules %d: %+v, %v", rules, changed, err)
		}
	}
}
