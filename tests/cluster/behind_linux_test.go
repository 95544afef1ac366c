package cluster

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/tests/mill"
)

// TestLeaderIsBehind: the disk under the leader of the run's stream is slow, so other servers hand
// out events that the leader has not stored yet. No rollout stands still for that.
func TestLeaderIsBehind(t *testing.T) {
	t.Parallel()
	c := onDisks(t)
	log := c.Log()
	const run, steps = "r", 60
	mills(t, c.Members, log, run)
	if err := mill.Open(t.Context(), log, run, steps); err != nil {
		t.Fatal(err)
	}
	c.disks[leads(t, c.Members, log, events.RunStream(run))].Slow(
		func(string) time.Duration { return rand.N(20 * time.Millisecond) })
	judged(t, log, run, steps)
}
