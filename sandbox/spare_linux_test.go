package sandbox_test

import (
	"os"
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
	eventually(t, "a first process is ready", func() bool {
		pid = sandbox.Spare()
		return pid != 0
	})
	return pid
}

// TestSpares: while sandboxes are open the next one's first process is ready, under that one's own limits; a dead one is passed over; and
// none outlives the last sandbox.
func TestSpares(t *testing.T) {
	sandboxtest.Require(t)
	one := made(t, sandbox.Spec{})
	if sandbox.Spare() != 0 {
		t.Error("a single sandbox has a spare process")
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
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH || sandbox.Spare() != 0 {
		t.Errorf("after the last sandbox: %v", err)
	}
	if groups := sandbox.GroupsOf(os.Getpid()); len(groups) > 0 {
		t.Errorf("groups are left: %v", groups)
	}
}
