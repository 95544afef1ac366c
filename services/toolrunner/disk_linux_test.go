package toolrunner

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/tasks"
)

// TestWorkspacesOnDisk: a runner whose disk holds one workspace works on two rollouts in turn, as
// the idle one makes room, and gives each the disk that its run allows. A workspace that was given
// up comes back as the log has it.
func TestWorkspacesOnDisk(t *testing.T) {
	folder := sandboxtest.SmallDisk(t, 700)
	log := natstest.Log(t)
	const size = 400
	runs := []string{"r", "s"}
	for _, run := range runs {
		open(t, log, run, func(cfg *runfile.RunConfig) { cfg.Limits.Disk, cfg.Tasks[0].DiskMB = size<<20, size })
	}
	plain, _ := newServiceOnly(t, log)
	s, _ := newServiceOnly(t, log, func(o *Options) { o.Disk = folder })
	needs := runfile.Needs{DiskMB: size}
	if err := plain.offer.missing(t.Context(), needs); err == nil ||
		!strings.Contains(err.Error(), "--workspace-disk") {
		t.Errorf("a runner without disks: %v", err)
	}
	if err := s.offer.missing(t.Context(), needs); err != nil {
		t.Errorf("a runner with disks: %v", err)
	}
	for n, step := range []struct{ command, answer string }{
		{"head -c 300000000 /dev/urandom >/tmp/more-than-memory-has && ls -s /tmp | grep -c more && echo one >b.txt",
			"1\n"}, {"cat b.txt", "one\n"},
	} {
		for _, run := range runs {
			turn(t, log, run, n, runfile.PoolRoute(poolRoute, needs), shell("c", step.command))
			fact := handleOf(t, s, log, run)[0]
			done := servicetest.Data[events.ToolsCompleted](t, fact)
			if done.Lost != "" || !strings.HasPrefix(done.Results[0].Content, step.answer) {
				t.Fatalf("run %s, turn %d: %+v", run, n, done)
			}
			if _, _, err := log.Appender.Append(t.Context(), fact); err != nil {
				t.Fatal(err)
			}
		}
	}
	if open := s.held.open.Load(); open != 1 {
		t.Errorf("%d sandboxes are open, and the disk has room for one", open)
	}
	if _, err := tasks.SandboxesOf(t.Context(), runfile.TaskSpec{DiskMB: size}, tasks.Machine{}, nil); err == nil {
		t.Error("a machine without disks makes the sandboxes")
	}
}
