// Package program builds the rondo binary for tests that use it as people do, and runs programs
// that end with their test.
package program

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/storage/storagetest"
)

// Main is a TestMain that builds rondo first, and says in path where.
func Main(m *testing.M, path *string) {
	var err error
	if *path, err = binary(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(Run(m))
}

// Run runs tests that wait for processes and clocks most of the time: of those that say t.Parallel,
// more at once than there are processors, unless it was told how many.
func Run(m *testing.M) (code int) {
	flag.Parse()
	if at := flag.Lookup("test.parallel"); at.Value.String() == at.DefValue {
		_ = at.Value.Set(strconv.Itoa(2 * runtime.GOMAXPROCS(0)))
	}
	return m.Run()
}

// Binary is rondo, for a test whose package does not have it by Main.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Bench is rondo-bench, which is built beside rondo.
func Bench(rondo string) string { return filepath.Join(filepath.Dir(rondo), "rondo-bench") }

// binary builds rondo, unless RONDO_BINARY names one: .ci/run builds it once for all packages.
func binary() (string, error) {
	if built := os.Getenv("RONDO_BINARY"); built != "" {
		return built, nil
	}
	folder, err := storagetest.Built(".", "./cmd/...")
	return filepath.Join(folder, "rondo"), err
}

// Missing ends a test that needs what this machine lacks.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// NeedSandbox skips a test where the kernel gives no sandbox.
func NeedSandbox(t testing.TB) {
	t.Helper()
	if _, err := sandbox.Probe(t.Context()); err != nil {
		Missing(t, "this machine gives no sandbox: %v", err)
	}
}

// Process is a program with a process group of its own, which ends with the test.
type Process struct {
	Cmd *exec.Cmd
	// Done is closed when it has ended.
	Done chan struct{}

	mu   sync.Mutex
	text bytes.Buffer
}

// Start starts a program.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Cmd: cmd, Done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p, p
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait(); close(p.Done) }()
	t.Cleanup(p.Kill)
	return p
}

// Write takes what the program prints.
func (p *Process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(text)
}

// String is what it has printed so far.
func (p *Process) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// Kill ends it, and what it has started, as a power cut would.
func (p *Process) Kill() {
	_ = syscall.Kill(-p.Cmd.Process.Pid, syscall.SIGKILL)
	<-p.Done
}

// KillWithin kills it at a moment that chance gives, at the latest so long from now, or
// finds that it has ended.
func (p *Process) KillWithin(most time.Duration) {
	select {
	case <-p.Done:
	case <-time.After(rand.N(most)):
	}
	p.Kill()
}

// Patience bounds how long a test waits: a busy machine is slow, and what never comes never comes.
const Patience = 5 * time.Minute

// Stop asks it to end.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	_ = p.Cmd.Process.Signal(os.Interrupt)
	select {
	case <-p.Done:
	case <-time.After(Patience):
		t.Fatalf("%s did not stop:\n%s", p.Cmd, p)
	}
}

// Eventually repeats a check until it passes.
func Eventually(t testing.TB, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(Patience); ; time.Sleep(100 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", Patience, err)
		}
	}
}
