package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/tests/program"
)

// TestFollowersFindTheRestartedPlane: a plane that is killed and started again has another port and
// another token, and who follows a run of it goes on.
func TestFollowersFindTheRestartedPlane(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "run.yaml")
	writeFile(t, file, "policy: small\nexternal: true\nfeeds: [{name: trainer, groups_per_batch: 2}]\n")
	up := serving(t, dir)
	mustRun(t, nil, "run", "open", "mine", "--file", file, "--dir", dir)
	followers := map[string]*program.Process{
		"events": start(t, "events", "tail", "mine", "--follow", "--dir", dir),
		"books":  start(t, "audit", "mine", "--watch", "--dir", dir),
	}
	for name, text := range map[string]string{"events": "run.opened", "books": "run mine: "} {
		program.Eventually(t, func() error {
			if said := followers[name].String(); !strings.Contains(said, text) {
				return errors.New(name + " does not begin: " + said)
			}
			return nil
		})
	}
	for i := range 2 {
		up.Kill()
		up = serving(t, dir)
		reason := fmt.Sprintf("restart-%d", i)
		program.Eventually(t, func() error {
			return run(t.Context(), nil, "events", "publish", "run.paused", "mine", "--run", "mine",
				"--data", fmt.Sprintf(`{"reason":%q}`, reason), "--id", reason, "--dir", dir)
		})
		program.Eventually(t, func() error {
			if said := followers["events"].String(); !strings.Contains(said, reason) {
				return errors.New("events tail does not go on: " + said)
			}
			return nil
		})
	}
	mustRun(t, nil, "run", "close", "mine", "--dir", dir)
	program.Eventually(t, func() error {
		select {
		case <-followers["books"].Done:
			return nil
		default:
			return errors.New("audit --watch does not see the end: " + followers["books"].String())
		}
	})
	up.Stop(t)
}
