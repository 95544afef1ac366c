package replay

import (
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/querysampler"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestCapacityIsReplayed: what a run decided by the capacities of its servers, it
// decides again from the log.
func TestCapacityIsReplayed(t *testing.T) {
	r := clitest.NewRecordedWith(t, func(c *runfile.RunConfig) {
		c.InFlight, c.Staleness.Max = runfile.AutoInFlight, 60
		c.Feeds[0].GroupsPerBatch = 8
	}, querysampler.Run)
	groups := func(when string, want int) { // that stand on the log, and no more
		t.Helper()
		natstest.Eventually(t, when, func() bool {
			return len(servicetest.All(t, r.Log, r.Run,
				events.GroupOpenedType)) >= want
		})
		if got := len(servicetest.All(t, r.Log, r.Run, events.GroupOpenedType)); got != want {
			t.Fatalf("%s: %d groups are open, want %d", when, got, want)
		}
	}
	started := servicetest.Wait(t, r.Log, r.Run, events.GroupOpenedType, events.GroupID(1), 1)
	size := servicetest.Data[events.GroupOpened](t, started[0]).Size
	unknown := (64 + size - 1) / size
	groups("before anything is measured", unknown)
	turns := unknown*size + 3*size
	r.State(events.CapacityMeasuredType, "small", "0", events.CapacityMeasured{Turns: turns})
	groups("with a larger capacity", unknown+3)
	r.State(events.CapacityMeasuredType, "small", "1", events.CapacityMeasured{Turns: 1})
	r.Score(events.RolloutID(events.GroupID(1), 0), "fix-a", 0, 1)
	r.State(events.CapacityMeasuredType, "small", "2", events.CapacityMeasured{Turns: turns})
	groups("when one is scored", unknown+4)
	v, err := Verify(t.Context(), r.Log.Reader, r.Run, func(uint64) {})
	if err != nil || v.Differences > 0 || len(v.Checked) == 0 {
		t.Fatalf("%+v, %v", v, err)
	}
}
