package replay

import (
	"testing"

	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestChangedKeepsTheTasks: a run file says no tasks, so a run that is replayed with another
// setting keeps those that it had.
func TestChangedKeepsTheTasks(t *testing.T) {
	cfg := servicetest.Config("a")
	changed, err := Changed(cfg, []string{"staleness.max=3"})
	if err != nil || changed.Staleness.Max != 3 || len(changed.Tasks) != 1 {
		t.Errorf("%+v, %v", changed, err)
	}
}
