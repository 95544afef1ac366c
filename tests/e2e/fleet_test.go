package e2e

import (
	"fmt"
	"testing"

	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/storage/storagetest"
	"github.com/rondo-rl/rondo/tests/program"
)

// services are all that a deployment runs.
var services = []string{"intake", "querysampler", "generator", "toolrunner", "scorer", "teacher", "advantagecalculator",
	"trainerfeeder", "weightpublisher", "indexupdater", "deadletters", "dashboard"}

// TestTwoOfEveryService runs two processes of all services on one external log and S3 store, from
// different directories, and kills one of them for good half way.
func TestTwoOfEveryService(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	s3 := storagetest.S3Dev(t)
	plane := []string{"--nats", server.URL(), "--store", "s3://rondo?endpoint=" + s3 + "&create=true"}
	policy := fmt.Sprintf("127.0.0.1:%d", natstest.FreePorts(t, 1)[0])
	args := func(dir string, names ...string) []string {
		return append(append(append([]string{"service"}, names...), plane...), "--dir", dir, "--builtin-endpoint",
			"http://"+policy+"/v1", "--policy-listen", policy, "--dashboard-listen", "127.0.0.1:0")
	}
	start(t, args(t.TempDir(), "policy", "trainer")...)
	first := start(t, args(t.TempDir(), services...)...)
	second := start(t, args(t.TempDir(), services...)...)
	pack := smallPack(t)
	program.Eventually(t, func() error {
		return run(t.Context(), nil, append([]string{"run", "open", "fleet", "--file", smallRun(t, 3), "--tasks", pack},
			plane...)...)
	})
	state := func(done func(runState) bool) func() error {
		return func() error {
			var now runState
			if err := run(t.Context(), &now, append([]string{"run", "show", "fleet", "--json"},
				plane...)...); err != nil {
				return err
			}
			if !done(now) {
				return fmt.Errorf("%+v\nfirst:\n%s\nsecond:\n%s", now, first, second)
			}
			return nil
		}
	}
	program.Eventually(t, state(func(s runState) bool { return len(s.Rewards) >= 1 }))
	first.Kill()
	program.Eventually(t, state(func(s runState) bool { return s.State == "closed" && len(s.Rewards) >= 3 }))
	verify(t, "fleet", plane...)
}
