package run

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
)

// TestCapacityIsShown: who looks at a run sees how many turns its servers can sample at once, as
// stated last, and of which of them that is assumed.
func TestCapacityIsShown(t *testing.T) {
	t.Parallel()
	r := clitest.NewRecorded(t)
	for i, c := range []struct {
		measured bool
		want     string
	}{
		{true, "\nservers: 41 turns at once\n"},
		{false, "\nservers: 41 turns at once; assumed for http://s/v1, which give no metrics: see that"},
	} {
		m := events.CapacityMeasured{Turns: 41, Servers: []events.ServerCapacity{{URL: "http://s/v1", Turns: 41,
			Measured: c.measured}}}
		r.State(events.CapacityMeasuredType, "small", events.Ordinal(i), m)
		if output, err := clitest.Run(t, New, "run", "show", "first", "--dir", r.Dir); err != nil ||
			!strings.Contains(output, c.want) {
			t.Errorf("measured %v: %v: %s", c.measured, err, output)
		}
	}
}
