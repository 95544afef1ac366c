// Package upgrade runs a plane whose processes are of two versions.
package upgrade

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/tests/program"
)

// older builds the version of RONDO_UPGRADE_FROM, which is a tag or a commit.
func older(t *testing.T) string {
	t.Helper()
	revision := os.Getenv("RONDO_UPGRADE_FROM")
	if revision == "" {
		t.Skip("builds another version: set RONDO_UPGRADE_FROM to a tag or commit, or use `task upgrade FROM=...`")
	}
	at, source := t.TempDir(), t.TempDir()
	run(t, "../..", "git", "archive", "--output", at+"/source.tar", "--", revision)
	run(t, source, "tar", "-xf", at+"/source.tar")
	run(t, source, "go", "build", "-o", at+"/", "./cmd/...")
	return filepath.Join(at, "rondo")
}

func run(t *testing.T, in, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = in
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

// TestRollingUpgrade: while a run goes on, the processes of its services are stopped one after the
// other and started in the other version, from the old one to the new and back, beginning with the
// intake or with the workers. Nobody's command fails, and the new version finds books and
// decisions as they must be.
func TestRollingUpgrade(t *testing.T) {
	before, now := older(t), program.Binary(t)
	program.NeedSandbox(t)
	for name, c := range map[string]struct {
		from, to string
		order    []int // of the processes of program.Services
	}{
		"forward, intake first":  {before, now, []int{0, 1, 2}},
		"forward, workers first": {before, now, []int{2, 1, 0}},
		"back, workers first":    {now, before, []int{2, 1, 0}},
	} {
		t.Run(name, func(t *testing.T) { rolls(t, c.from, c.to, now, c.order) })
	}
}

func rolls(t *testing.T, from, to, judge string, order []int) {
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", SyncInterval: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	store := t.TempDir()
	settings := program.Over(server.URL(), store)
	first, second := program.NewClient(t, from, settings...), program.NewClient(t, to, settings...)

	services := program.Services(fmt.Sprint("127.0.0.1:", natstest.FreePorts(t, 1)[0]))
	processes := make([]*program.Process, len(services))
	for i, args := range services {
		processes[i] = first.Start(args...)
	}
	demo := first.Start(program.ShortDemo(4)...)
	log := logOf(t, server, store)
	program.Grows(t, log, program.DemoRun, 20, "in the beginning", processes...)
	for _, i := range order {
		processes[i].Stop(t)
		processes[i] = second.Start(services[i]...)
		program.Grows(t, log, program.DemoRun, 30, fmt.Sprintf("with process %d of the other version", i), processes...)
	}
	if err := program.Alive(demo); err != nil {
		t.Fatal("the run is too short: ", err)
	}
	demo.Wait(t, processes...)
	for _, p := range slices.Backward(processes) {
		p.Stop(t)
	}
	judges := program.NewClient(t, judge, settings...)
	judges.Must("audit", program.DemoRun)
	judges.Must("replay", program.DemoRun, "--verify")
}

// logOf is the log of a server and a store, over a connection of its own.
func logOf(t *testing.T, server *embedded.Server, store string) *eventlog.Log {
	t.Helper()
	nc, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	objects, err := dir.Open(store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { objects.Close() })
	log, err := eventlog.New(nc, objects)
	if err != nil {
		t.Fatal(err)
	}
	return log
}
