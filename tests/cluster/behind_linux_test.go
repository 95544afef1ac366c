package cluster

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/tests/mill"
	"github.com/rondo-rl/rondo/tests/power/forgetful"
	"github.com/rondo-rl/rondo/tests/program"
)

// TestLeaderIsBehind: the disk under the leader of the run's stream is slow, so other servers hand out events that the leader has not stored yet. No
// rollout stands still for that.
func TestLeaderIsBehind(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	var dirs []string
	var disks []*forgetful.Disk
	for i := range servers {
		dir, disk := filepath.Join(t.TempDir(), strconv.Itoa(i)), forgetful.NewDisk()
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		unmount, err := forgetful.Mount(disk, dir)
		if err != nil {
			program.Missing(t, "%v", err)
		}
		t.Cleanup(func() { _ = unmount() })
		dirs, disks = append(dirs, dir), append(disks, disk)
	}
	c := natstest.StartMembersIn(t, dirs, true)
	log := c.Log()
	const run, steps = "r", 60
	mills(t, c, log, run)
	if err := mill.Open(t.Context(), log, run, steps); err != nil {
		t.Fatal(err)
	}
	disks[leads(t, c, log, events.RunStream(run))].Slow(func(string) time.Duration { return rand.N(20 * time.Millisecond) })
	judged(t, log, run, steps)
}
