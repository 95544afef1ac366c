package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rondo-rl/rondo/tests/program"
)

// TestLogFolderIsDestroyed: the log's disk is lost in the middle of a run, and store and
// checkpoint of the trainer are not. The run is restored from its archive, which ends steps
// before the checkpoint, and comes to its end: the trainer takes the new batches of the lost
// steps for what they are.
func TestLogFolderIsDestroyed(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	dir, pack := t.TempDir(), smallPack(t)
	up := serving(t, dir)
	program.Eventually(t, func() error {
		return run(t.Context(), nil, "run", "open", "lost", "--file", smallRun(t, 6), "--tasks", pack, "--dir", dir)
	})
	reached := func(version int64) {
		t.Helper()
		program.Eventually(t, func() error {
			var now runState
			err := run(t.Context(), &now, "run", "show", "lost", "--dir", dir, "--json")
			if err == nil && now.PolicyVersion < version {
				err = fmt.Errorf("policy version %d\n%s", now.PolicyVersion, up)
			}
			return err
		})
	}
	reached(1)
	mustRun(t, nil, "archive", "seal", "lost", "--dir", dir, "--json")
	reached(3)
	up.Kill()
	if err := os.RemoveAll(filepath.Join(dir, "nats")); err != nil {
		t.Fatal(err)
	}
	mustRun(t, nil, "archive", "restore", "lost", "--dir", dir, "--json")

	up = serving(t, dir)
	settle(t, "lost", dir, up)
	up.Stop(t)
	verify(t, "lost", "--dir", dir)
	var now runState
	mustRun(t, &now, "run", "show", "lost", "--dir", dir, "--json")
	if now.PolicyVersion < 7 { // 6 steps, and at least one that the log has lost
		t.Errorf("%+v", now)
	}
}
