package sandbox_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

func init() {
	actors["nothing"] = func() {}
	actors["fork bomb"] = func() {
		program := []string{"/opt/program"}
		for { // each child does the same
			_, _ = syscall.ForkExec(program[0], program,
				&syscall.ProcAttr{Env: os.Environ(), Sys: &syscall.SysProcAttr{Setsid: true}})
		}
	}
	actors["memory hog"] = func() {
		var held [][]byte
		for {
			block := make([]byte, 8<<20)
			for i := 0; i < len(block); i += 4096 {
				block[i] = 1
			}
			held = append(held, block)
			if len(held) > 4096 {
				return // 32 GiB: nothing limits
			}
			time.Sleep(2 * time.Millisecond) // 4 GiB/s would outrun the 100 ms of a poller by half a gigabyte
		}
	}
}

func TestForkBomb(t *testing.T) {
	spec := sandbox.Spec{Limits: sandbox.Limits{PIDs: 40, Wall: time.Second}}
	sb, result := inside(t, spec, map[string]string{"RONDO_TEST_ACTOR": "fork bomb", "GOMAXPROCS": "1"})
	if !result.TimedOut && result.ExitCode == 0 {
		t.Errorf("the bomb ended by itself: %+v", result)
	}
	onlyInitRuns(t, sb)
	// A shell's bomb, and the file tools while it burns.
	done := make(chan error)
	go func() {
		_, err := sb.Exec(t.Context(), sh("b() { b | b & b; }; b"))
		done <- err
	}()
	for range 20 {
		if err := sb.WriteFile(t.Context(), "during", []byte("x"), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := sb.ReadFile(t.Context(), "during", 10); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	onlyInitRuns(t, sb)
}

// TestHoppingProcess: what forks and ends at once is nowhere for long, and does
// not outlive its command.
func TestHoppingProcess(t *testing.T) {
	sb := sandboxtest.New(t, sandbox.Spec{Limits: sandbox.Limits{PIDs: 40}})
	for range 10 {
		run(t, sb, sh("hop() { hop & }; hop"))
		onlyInitRuns(t, sb)
	}
	run(t, sb, sandbox.Command{Argv: []string{"sleep", "1000"}, Background: true})
	for range 10 {
		run(t, sb, sh("hop() { hop & }; hop"))
		if got := output(t, sb, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"); strings.Contains(got, "hop") {
			t.Errorf("still running: %s", got)
		}
	}
}

// TestProcessLimit: the limit holds, and a command that cannot start because of it says so.
func TestProcessLimit(t *testing.T) {
	sb := sandboxtest.New(t, sandbox.Spec{Limits: sandbox.Limits{PIDs: 20}})
	result := run(t, sb, sh("i=0; while [ $i -lt 200 ]; do sleep 30 & i=$((i+1)); done; echo all"))
	if string(result.Stdout) == "all\n" {
		t.Error("200 processes were started where 20 are allowed")
	}
	bomb, _ := inside(t, sandbox.Spec{Limits: sandbox.Limits{PIDs: 20}},
		map[string]string{"RONDO_TEST_ACTOR": "nothing"})
	run(t, bomb, sandbox.Command{Argv: []string{"/opt/program"},
		Env: map[string]string{"RONDO_TEST_ACTOR": "fork bomb"}, Background: true})
	eventually(t, "a command cannot be started", func() bool {
		result := run(t, bomb, sandbox.Command{Argv: []string{"true"}})
		return result.ExitCode == 126 && strings.Contains(string(result.Stderr), "limit on processes")
	})
	if err := bomb.KillAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	onlyInitRuns(t, bomb)
}

func TestMemoryLimit(t *testing.T) {
	testMemoryLimit(t)
}

func testMemoryLimit(t *testing.T) {
	spec := sandbox.Spec{Limits: sandbox.Limits{MemoryBytes: 128 << 20, DiskBytes: 32 << 20, Wall: 30 * time.Second}}
	sb, result := inside(t, spec, map[string]string{"RONDO_TEST_ACTOR": "memory hog"})
	if !result.OutOfMemory || result.ExitCode != 137 || result.TimedOut {
		t.Errorf("out of memory %v, exit code %d, timed out %v", result.OutOfMemory, result.ExitCode, result.TimedOut)
	}
	if result := run(t, sb, sh("echo alive")); string(result.Stdout) != "alive\n" || result.OutOfMemory {
		t.Errorf("afterwards: %+v", result)
	}
}

// TestProcessorLimit: who uses more than its share is held back.
func TestProcessorLimit(t *testing.T) {
	t.Parallel()
	sb := sandboxtest.New(t, sandbox.Spec{Limits: sandbox.Limits{CPUs: 0.05, Wall: 10 * time.Second}})
	before, limited := sb.Throttled()
	if !limited {
		if sandbox.LimitsByCgroup() {
			t.Error("control groups can be made, and none limits processor time")
		}
		t.Skip("control groups cannot be made here")
	}
	run(t, sb, sandbox.Command{Argv: []string{"sh", "-c", "while :; do :; done"}, Background: true})
	eventually(t, "the loop is held back", func() bool { now, _ := sb.Throttled(); return now > before+2 })
	if times, limited := sandboxtest.New(t, sandbox.Spec{}).Throttled(); limited || times != 0 {
		t.Errorf("a sandbox without a limit: %d, %v", times, limited)
	}
}

func TestDiskLimit(t *testing.T) {
	sb := sandboxtest.New(t, sandbox.Spec{Limits: sandbox.Limits{DiskBytes: 8 << 20}})
	for _, folder := range []string{"/app", "/tmp", "/root", "/var/tmp", "/dev/shm", "/run", "/logs"} {
		result := run(t, sb, sh("cat /dev/zero > "+folder+"/big; stat -c %s "+folder+"/big; rm "+folder+"/big"))
		if size := strings.TrimSpace(string(result.Stdout)); len(size) > 7 {
			t.Errorf("%s took %s bytes", folder, size)
		}
	}
	output(t, sb, "dd if=/dev/zero of=a bs=1M count=7 2>/dev/null")
	if err := sb.WriteFile(t.Context(), "b", make([]byte, 2<<20), 0); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("WriteFile on a full disk = %v, want ENOSPC", err)
	}
	if err := sb.WriteFile(t.Context(), "c", make([]byte, 9<<20), 0); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("WriteFile of more than the disk = %v, want ENOSPC", err)
	}
	result := run(t, sb, sh("i=0; mkdir /tmp/n; while : > /tmp/n/$i; do i=$((i+1)); done 2>/dev/null; echo $i"))
	if count := strings.TrimSpace(string(result.Stdout)); len(count) > 4 {
		t.Errorf("made %s files", count)
	}
}

func TestLimitsAreChecked(t *testing.T) {
	sandboxtest.Require(t)
	for name, spec := range map[string]sandbox.Spec{
		"memory":               {Limits: sandbox.Limits{MemoryBytes: 1}},
		"disk":                 {Limits: sandbox.Limits{DiskBytes: -1}},
		"processes":            {Limits: sandbox.Limits{PIDs: -3}},
		"time":                 {Limits: sandbox.Limits{Wall: -time.Second}},
		"processors":           {Limits: sandbox.Limits{CPUs: -1}},
		"isolation":            {MinIsolation: "vm"},
		"output":               {Limits: sandbox.Limits{OutputBytes: 1}},
		"relative workspace":   {Workdir: "app"},
		"workspace on system":  {Workdir: "/usr"},
		"workspace in kernel":  {Workdir: "/proc/x"},
		"mount over workspace": {Mounts: []sandbox.Mount{{Source: "/usr", Target: "/app"}}},
		"mount not clean":      {Mounts: []sandbox.Mount{{Source: "/usr", Target: "/a/../b"}}},
		"mount relative":       {Mounts: []sandbox.Mount{{Source: "usr", Target: "/b"}}},
		"mount not there":      {Mounts: []sandbox.Mount{{Source: "/no/such/folder", Target: "/b"}}},
		"bad archive":          {ReadOnly: map[string][]byte{"/tests": []byte("no archive")}},
		"in a system folder":   {Workdir: "/usr/bin/workspace"},
	} {
		t.Run(name, func(t *testing.T) {
			sb, err := sandbox.New(t.Context(), spec)
			if err == nil {
				sb.Close()
				t.Fatal("was accepted")
			}
			t.Log(err)
		})
	}
}

func TestMemoryLimitByPolling(t *testing.T) {
	sandbox.WithoutCgroups(t)
	testMemoryLimit(t)
}
