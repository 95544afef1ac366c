package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/tests/nightly"
	"github.com/rondo-rl/rondo/tests/program"
)

// TestPlaneIsKilled kills the whole plane at random moments and lets it go on.
func TestPlaneIsKilled(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	dir, pack := t.TempDir(), smallPack(t)
	up := start(t, "up", "--dir", dir)
	program.Eventually(t, func() error {
		return run(t.Context(), nil, "run", "open", "crash", "--file", smallRun(t, 40), "--tasks", pack, "--dir", dir)
	})
	var last runState
	for i := range nightly.Count(4, 20) {
		up.KillWithin(1300 * time.Millisecond)
		up = start(t, "up", "--dir", dir)
		if i%2 == 1 { // some kills come in the middle of a recovery, others after progress
			program.Eventually(t, func() error {
				var now runState
				if err := run(t.Context(), &now, "run", "show", "crash", "--dir", dir, "--json"); err != nil {
					return err
				}
				if now.State == "open" && now.Events <= last.Events {
					return fmt.Errorf("no progress behind event %d\n%s", last.Events, up)
				}
				last = now
				return nil
			})
		}
	}
	program.Eventually(t, func() error { // the kills may have left no rollout the time to end
		var a audit
		if err := run(t.Context(), &a, "audit", "crash", "--dir", dir, "--json"); err != nil {
			return err
		}
		if a.Trained == 0 {
			return fmt.Errorf("nothing is batched: %+v\n%s", a, up)
		}
		return nil
	})
	mustRun(t, nil, "run", "close", "crash", "--dir", dir)
	settle(t, "crash", dir, up)
	up.Stop(t)
	verify(t, "crash", "--dir", dir)
	if err := os.RemoveAll(filepath.Join(dir, "projections")); err != nil {
		t.Fatal(err)
	}
	verify(t, "crash", "--dir", dir)
}

// settle waits until nothing of a closed run is in flight but batches that nobody takes.
func settle(t *testing.T, name, dir string, p *program.Process) {
	t.Helper()
	var before int64 = -1
	changed := time.Now()
	program.Eventually(t, func() error {
		var now runState
		if err := run(t.Context(), &now, "run", "show", name, "--dir", dir, "--json"); err != nil {
			return err
		}
		if now.Events != before {
			before, changed = now.Events, time.Now()
		}
		if now.State != "closed" || time.Since(changed) < 2*time.Second {
			return errors.New("the run still moves\n" + p.String())
		}
		return nil
	})
}

// verify holds a run to everything that is promised of it.
func verify(t *testing.T, name string, flags ...string) {
	t.Helper()
	var a audit
	mustRun(t, &a, append([]string{"audit", name, "--json"}, flags...)...)
	checkAudit(t, a)
	recompute(t, name, []string{"querysampler", "advantagecalculator", "trainerfeeder/trainer"}, flags...)
	t.Logf("%s: %+v", name, a)
}

// recompute makes a run's decisions again; each of some deciders must have made any.
func recompute(t *testing.T, name string, deciders []string, flags ...string) {
	t.Helper()
	var v struct {
		Differences int            `json:"differences"`
		Checked     map[string]int `json:"checked"`
	}
	mustRun(t, &v, append([]string{"replay", name, "--verify", "--json"}, flags...)...)
	if v.Differences != 0 || slices.ContainsFunc(deciders, func(d string) bool { return v.Checked[d] == 0 }) {
		t.Errorf("replay of %s: %+v", name, v)
	}
}
