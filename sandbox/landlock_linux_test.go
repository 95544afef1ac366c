package sandbox_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

func init() {
	actors["outside"] = tryOutside
}

// needLandlock skips the test on kernels before Linux 6.12, or fails it where everything must run.
func needLandlock(t *testing.T) {
	t.Helper()
	switch {
	case sandbox.HasLandlock():
	case os.Getenv("RONDO_REQUIRE_ALL") == "1":
		t.Fatal("Landlock is required by RONDO_REQUIRE_ALL=1")
	default:
		t.Skip("this kernel has no Landlock, or too old a one")
	}
}

// atLandlock makes a sandbox of the middle level, which root alone can make.
func atLandlock(t *testing.T, spec sandbox.Spec) *sandbox.Sandbox {
	t.Helper()
	sandboxtest.Require(t)
	needLandlock(t)
	sb, err := sandbox.NewAt(t.Context(), sandbox.IsolationLandlock, spec)
	if os.Geteuid() != 0 {
		if err == nil || !strings.Contains(err.Error(), "only root") {
			t.Fatalf("an ordinary user's sandbox at this level: %v", err)
		}
		t.Skip("the level is for root")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sb.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return sb
}

// TestLandlockLevel: a place to work in, with no way to the host's files, processes and network.
func TestLandlockLevel(t *testing.T) {
	t.Parallel()
	other := atLandlock(t, sandbox.Spec{})
	// Below none of the names that are the sandbox's own folders.
	folder, err := os.MkdirTemp("/srv", "rondo-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	// Everyone may read and write it but for the rules.
	secret := filepath.Join(folder, "secret")
	if err := errors.Join(os.Chmod(folder, 0o777), os.WriteFile(secret, []byte("secret of the host"), 0o644),
		os.Chmod(secret, 0o666)); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(folder, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	spec := sandbox.Spec{Mounts: []sandbox.Mount{{Source: program, Target: "/opt/program"}},
		Limits: sandbox.Limits{PIDs: 40}}
	// The program lies where only root may enter.
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	spec.Mounts[0].Source = filepath.Join(folder, "program")
	if err := os.WriteFile(spec.Mounts[0].Source, data, 0o755); err != nil {
		t.Fatal(err)
	}
	sb := atLandlock(t, spec)
	if sb.Isolation() != sandbox.IsolationLandlock {
		t.Errorf("isolation %q", sb.Isolation())
	}
	output(t, other, "echo theirs > file")
	victim := run(t, other, sandbox.Command{Argv: []string{"sleep", "600"}, Background: true})
	result := run(t, sb, sandbox.Command{Argv: []string{"/opt/program"}, Env: map[string]string{
		"RONDO_TEST_ACTOR": "outside", "SECRET": secret, "SOCKET": listener.Addr().String(),
		"HOST_PID": strconv.Itoa(os.Getpid()), "VICTIM": strconv.Itoa(victim.PID),
	}})
	if result.ExitCode != 0 || len(result.Stdout) != 0 {
		t.Errorf("exit code %d\n%s%s", result.ExitCode, result.Stdout, result.Stderr)
	}
	if _, err := sb.ReadFile(t.Context(), secret, 100); !errors.Is(err, os.ErrPermission) {
		t.Errorf("ReadFile of the host's: %v", err)
	}
	if err := sb.WriteFile(t.Context(), folder+"/new", nil, 0); !errors.Is(err, os.ErrPermission) {
		t.Errorf("WriteFile to the host's: %v", err)
	}
	// What it is for works.
	if err := sb.Unpack(t.Context(), "/app", sandboxtest.Pack(t,
		map[string]string{"a/b": "of the snapshot"})); err != nil {
		t.Fatal(err)
	}
	if err := sb.SetBase(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := output(t, sb,
		`cat a/b; echo x > a/c; mkdir d; mv a/b d/b; chmod 755 d/b; cat < /dev/null; echo y > /tmp/y; cat /tmp/y; (sleep 600 & p=$!; kill $p; wait $p) || pwd`); got != "of the snapshoty\n/app" {
		t.Errorf("got %q", got)
	}
	if changes(t, sb) == nil {
		t.Error("no change is seen")
	}
	// The limit on processes counts this sandbox's alone.
	if result := run(t, sb, sh("i=0; while [ $i -lt 200 ]; do sleep 30 & i=$((i+1)); done; echo all")); string(
		result.Stdout) == "all\n" {
		t.Error("200 processes were started where 40 are allowed")
	}
	if syscall.Kill(victim.PID, 0) != nil {
		t.Error("the other sandbox's process is gone")
	}
}

func tryOutside() {
	secret := os.Getenv("SECRET")
	for _, name := range []string{secret, "/etc/shadow", "/etc/hostname", "/root", "/home", "/var", "/sys/kernel",
		"/proc/" + os.Getenv("HOST_PID") + "/root" + secret, "/proc/" + os.Getenv("HOST_PID") + "/environ",
		"/proc/1/environ", "/dev/kmsg"} {
		if file, err := os.Open(name); err == nil {
			escaped("open %s", name)
			file.Close()
		}
	}
	folder := filepath.Dir(secret)
	for what, err := range map[string]error{
		"write":    os.WriteFile(secret, nil, 0),
		"truncate": os.Truncate(secret, 0),
		"create":   os.WriteFile("/var/tmp/rondo-planted", nil, 0o644),
		"mkdir":    os.Mkdir(folder+"/d", 0o755),
		"remove":   os.Remove(secret),
		"rename":   os.Rename(secret, folder+"/renamed"),
		"link":     os.Link(secret, os.Getenv("TMPDIR")+"/link"),
		"chmod":    os.Chmod(secret, 0o777),
		"become":   syscall.Setuid(0),
		"user ns":  unix.Unshare(unix.CLONE_NEWUSER),
		"ptrace":   syscall.PtraceAttach(os.Getppid()),
	} {
		if err == nil {
			escaped("%s", what)
		}
	}
	for name, family := range map[string]int{"inet": unix.AF_INET, "inet6": unix.AF_INET6, "unix": unix.AF_UNIX,
		"netlink": unix.AF_NETLINK, "vsock": unix.AF_VSOCK} {
		if fd, err := unix.Socket(family, unix.SOCK_DGRAM, 0); err == nil {
			escaped("socket of family %s", name)
			unix.Close(fd)
		}
	}
	if conn, err := net.Dial("unix", os.Getenv("SOCKET")); err == nil {
		escaped("connected to the host's socket")
		conn.Close()
	}
	if _, _, errno := syscall.RawSyscall(unix.SYS_SHMGET, 1, 4096, unix.IPC_CREAT|0o600); errno != unix.EPERM {
		escaped("shmget answers %v", errno)
	}
	for _, name := range []string{"HOST_PID", "VICTIM"} {
		if pid, err := strconv.Atoi(os.Getenv(name)); err != nil || syscall.Kill(pid, 0) == nil {
			escaped("can signal %s %d, %v", name, pid, err)
		}
	}
	if syscall.Kill(os.Getppid(), syscall.SIGKILL) == nil {
		escaped("can signal the process that started it")
	}
	if os.Geteuid() < 1_879_048_192 {
		fmt.Printf("ESCAPED: is user %d\n", os.Geteuid())
	}
}

// TestRulesInsideNamespaces: what the mounts would let commands and file tools write below
// /proc, Landlock does not.
func TestRulesInsideNamespaces(t *testing.T) {
	t.Parallel()
	sb := sandboxtest.New(t, sandbox.Spec{})
	result := run(t, sb, sh("echo 10 > /proc/self/timerslack_ns; echo 1000 > /proc/self/oom_score_adj"))
	if result.ExitCode == 0 || strings.Count(string(result.Stderr), "Permission denied") != 2 {
		t.Errorf("exit code %d: %s", result.ExitCode, result.Stderr)
	}
	// Commands are under the same rules, so they see and signal one another.
	background := run(t, sb, sandbox.Command{Argv: []string{"sleep", "600"}, Background: true})
	if got := output(t, sb, fmt.Sprintf("tr '\\0' ' ' < /proc/%d/cmdline; kill %d", background.PID,
		background.PID)); got != "sleep 600" {
		t.Errorf("another command's process shows %q", got)
	}
	if got := output(t, sb,
		"mkdir -p a b; echo x > a/f; mv a/f b/f; ln b/f a/g; mkfifo p; cat a/g; echo y | tee /dev/stderr > /dev/null; echo z > /dev/shm/z"); got != "x" {
		t.Errorf("got %q", got)
	}
}

// TestRootTakesNamespaces: a sandbox that could not show an image's tree is refused, and does not
// show the host's instead.
func TestRootTakesNamespaces(t *testing.T) {
	for _, level := range []string{sandbox.IsolationLandlock, sandbox.IsolationNone} {
		sb, err := sandbox.NewAt(t.Context(), level, sandbox.Spec{Root: t.TempDir()})
		if err == nil {
			sb.Close()
		}
		if !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%s: %v", level, err)
		}
	}
}
