package outage

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/tests/nightly"
	"github.com/rondo-rl/rondo/tests/program"
)

// TestOutageLossAndKills: a plane with two runs is without its store for ten minutes, five times
// as long as a rollout may take. It is killed before the store is back. Then the stream of one run
// is deleted, and restored beside the services, by a recovery that is killed and begun again; and
// the plane is killed once more. Both runs go on by themselves each time, no run is paused, and
// the audit of both is clean.
func TestOutageLossAndKills(t *testing.T) {
	nightly.Only(t)
	program.NeedSandbox(t)
	const timeout, lasts = 2 * time.Minute, 10 * time.Minute
	dir, status, front := t.TempDir(), address(t), newFront(t)
	runs := []string{"lost", "other"}
	var up *program.Process
	start := func() {
		up = program.Start(t, exec.Command(rondo, "up", "--dir", dir, "--store", front.store, "--listen", status))
		wants(t, status, "/readyz", true)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the plane:\n%s", up)
		}
	})
	goOn := func(what string) {
		t.Helper()
		began := time.Now()
		for _, run := range runs {
			before, err := eventsOf(t, dir, run)
			if err != nil {
				t.Fatal(err)
			}
			grows(t, dir, run, before)
		}
		t.Logf("%s: both runs go on after %.1f minutes", what, time.Since(began).Minutes())
	}
	start()
	for _, run := range runs {
		open(t, dir, run, timeout)
	}
	goOn("opened")

	front.down.Store(true)
	wants(t, status, "/readyz", false, "store_unreachable", "inputs_parked")
	<-time.After(lasts)
	up.Kill()
	front.down.Store(false)
	start()
	goOn("the store was away for ten minutes, and the plane was killed")

	if out, code := command(t, "archive", "seal", "lost", "--dir", dir); code != 0 {
		t.Fatal(out)
	}
	goOn("behind what is archived")
	deleteStream(t, dir, "lost")
	recovery := program.Start(t, exec.Command(rondo, "run", "recover", "lost", "--dir", dir))
	<-time.After(200 * time.Millisecond) // it may be anywhere
	recovery.Kill()
	if out, code := command(t, "run", "recover", "lost", "--dir", dir); code != 0 {
		t.Fatalf("run recover: %d\n%s", code, out)
	}
	goOn("a stream was deleted and restored")
	up.Kill()
	start()
	goOn("the plane was killed again")

	for _, run := range runs {
		for _, e := range typed(t, dir, run) {
			if strings.HasSuffix(e.Type, "run.paused") {
				t.Errorf("run %s was paused: %s", run, e.Data)
			}
		}
		if out, code := command(t, "audit", run, "--dir", dir); code != 0 {
			t.Errorf("audit of %s: %d\n%s", run, code, out)
		}
	}
	up.Stop(t)
}

// deleteStream deletes the stream of a run beside the plane.
func deleteStream(t *testing.T, dir, run string) {
	t.Helper()
	e, err := plane.ReadEndpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(e.NATS)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err == nil {
		err = js.DeleteStream(t.Context(), events.RunStream(run))
	}
	if err != nil {
		t.Fatal(err)
	}
}
