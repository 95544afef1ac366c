package sandbox_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

func made(t *testing.T, spec sandbox.Spec) *sandbox.Sandbox {
	t.Helper()
	sb, err := sandbox.New(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sb.Close() })
	return sb
}

func ready(t *testing.T) (pid int) {
	t.Helper()
	return kinds(t, 1)[0]
}

// kinds waits until a first process is ready of each of so many kinds.
func kinds(t *testing.T, count int) (pids []int) {
	t.Helper()
	eventually(t, "first processes are ready", func() bool {
		pids = sandbox.Prewarmed()
		return len(pids) == count
	})
	return pids
}

// TestSpares: while sandboxes are open the next one's first process is ready, under that one's own
// limits; a dead one is passed over; and none outlives the last sandbox.
func TestSpares(t *testing.T) {
	sandboxtest.Require(t)
	one := made(t, sandbox.Spec{})
	if len(sandbox.Prewarmed()) != 0 {
		t.Error("a single sandbox has a prewarmed process")
	}
	two := made(t, sandbox.Spec{})
	pid := ready(t)
	three := made(t, sandbox.Spec{Limits: sandbox.Limits{MemoryBytes: 64 << 20, DiskBytes: 16 << 20}})
	if three.PID() != pid {
		t.Errorf("process %d was ready, and %d is the sandbox's", pid, three.PID())
	}
	if limit, limited := three.MemoryLimit(); limited && limit != 64<<20+16<<20 {
		t.Errorf("its group may take %d bytes of memory", limit)
	}
	pid = ready(t)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	four := made(t, sandbox.Spec{})
	if got := output(t, four, "echo 4"); got != "4" || four.PID() == pid {
		t.Errorf("got %q from process %d", got, four.PID())
	}
	pid = ready(t)
	for _, sb := range []*sandbox.Sandbox{one, two, three, four} {
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH || len(sandbox.Prewarmed()) != 0 {
		t.Errorf("after the last sandbox: %v", err)
	}
	if groups := sandbox.GroupsOf(os.Getpid()); len(groups) > 0 {
		t.Errorf("groups are left: %v", groups)
	}
}

// TestSparesOfAKind: a first process that waits is not taken for a sandbox that sees
// other files of the host.
func TestSparesOfAKind(t *testing.T) {
	sandboxtest.Require(t)
	folder := filepath.Join(t.TempDir(), "data")
	fill := func(text string) {
		if err := errors.Join(os.Mkdir(folder, 0o755),
			os.WriteFile(filepath.Join(folder, "text"), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	fill("old")
	if err := os.Chmod(filepath.Dir(filepath.Dir(folder)), 0o755); err != nil {
		t.Fatal(err)
	}
	made(t, sandbox.Spec{})
	made(t, sandbox.Spec{})
	plain := ready(t)
	data := sandbox.Spec{Mounts: []sandbox.Mount{{Source: folder, Target: "/data"}}}
	if sb := made(t, data); sb.PID() == plain || output(t, sb, "cat /data/text") != "old" {
		t.Errorf("process %d, which was to show nothing, shows %q", plain, output(t, sb, "cat /data/text"))
	}
	waiting := kinds(t, 2)
	if sb := made(t, data); sb.PID() == plain || !slices.Contains(waiting, sb.PID()) ||
		output(t, sb, "cat /data/text") != "old" {
		t.Errorf("process %d of %v shows %q", sb.PID(), waiting, output(t, sb, "cat /data/text"))
	}
	waiting = kinds(t, 2)
	elsewhere := sandbox.Spec{Mounts: []sandbox.Mount{{Source: folder, Target: "/elsewhere"}}}
	if sb := made(t, elsewhere); slices.Contains(waiting, sb.PID()) || output(t, sb, "cat /elsewhere/text") != "old" {
		t.Errorf("process %d of %v shows %q", sb.PID(), waiting, output(t, sb, "cat /elsewhere/text"))
	}
	waiting = kinds(t, 3)
	if err := os.Rename(folder, folder+".old"); err != nil {
		t.Fatal(err)
	}
	fill("new")
	if sb := made(t, data); slices.Contains(waiting, sb.PID()) || output(t, sb, "cat /data/text") != "new" {
		t.Errorf("process %d of %v shows %q", sb.PID(), waiting, output(t, sb, "cat /data/text"))
	}
}
