// Package slurm tries the batch script for tool runners and scorers with
// stand-ins for Slurm's commands.
package slurm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/tests/program"
)

// TestJobRunsTheSandboxes: a job on two nodes runs the tools and the verifiers of a plane that has
// neither. When it is cancelled its processes end, and leave no folder behind.
func TestJobRunsTheSandboxes(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	rondo := program.Binary(t)
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true,
		StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
		MaxPayload: 8 << 20, JetStreamMaxStore: 1 << 40, JetStreamMaxMemory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server did not get ready")
	}
	stands, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	node := t.TempDir()
	env := []string{"PATH=" + stands + ":" + filepath.Dir(rondo) + ":" + os.Getenv("PATH"),
		"HOME=" + t.TempDir(), "TMPDIR=" + node,
		"RONDO_NATS=" + s.ClientURL(), "RONDO_STORE=" + t.TempDir()}
	start := func(name string, args ...string) *program.Process {
		command := exec.Command(name, args...)
		command.Env = env
		return program.Start(t, command)
	}
	listen := fmt.Sprintf("127.0.0.1:%d", natstest.FreePorts(t, 1)[0])
	services := strings.Fields("service intake querysampler generator advantagecalculator trainerfeeder weightpublisher archiver deadletters policy trainer")
	start(rondo, append(services, "--dir", t.TempDir(), "--policy-listen", listen, "--builtin-endpoint",
		"http://"+listen+"/v1")...)
	job := start(filepath.Join(stands, "sbatch"), "--nodes=2", "../../examples/slurm/runners.sbatch")
	folders := func() []string {
		found, err := filepath.Glob(filepath.Join(node, fmt.Sprintf("rondo-%d-*", job.Cmd.Process.Pid)))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	program.Eventually(t, func() error {
		select {
		case <-job.Done:
			t.Fatalf("the job has ended:\n%s", job)
		default:
		}
		if strings.Count(job.String(), "services started") != 2 || len(folders()) != 2 {
			return fmt.Errorf("two nodes have the folders %v and say\n%s", folders(), job)
		}
		return nil
	})
	for _, args := range []string{"demo --steps 1 --groups-per-batch 2 --group-size 4 --quiet --dir",
		"audit demo-1 --dir"} {
		command := exec.Command(rondo, append(strings.Fields(args), t.TempDir())...)
		command.Env = env
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("rondo %s: %v\n%s\n%s", args, err, out, job)
		}
	}
	if err := job.Cmd.Process.Signal(syscall.SIGTERM); err != nil { // as the time of the job ends
		t.Fatal(err)
	}
	select {
	case <-job.Done:
	case <-time.After(60 * time.Second): // what --signal leaves
		t.Fatalf("the job works on:\n%s", job)
	}
	if left := folders(); len(left) > 0 || job.Cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("the job ended with %d and left %v:\n%s", job.Cmd.ProcessState.ExitCode(), left, job)
	}
}

// TestJobNeedsItsSettings: without the plane's addresses the job ends at once and
// says which one it lacks.
func TestJobNeedsItsSettings(t *testing.T) {
	t.Parallel()
	command := exec.Command("bash", "../../examples/slurm/runners.sbatch")
	command.Env = []string{"PATH=" + os.Getenv("PATH")}
	if out, err := command.CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "RONDO_NATS: name the NATS server") {
		t.Errorf("%v: %s", err, out)
	}
}
