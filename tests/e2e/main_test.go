// Package e2e runs the rondo binary as its users do, and lets things go wrong.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
)

// rondo is the binary under test.
var rondo string

func TestMain(m *testing.M) {
	sandbox.Main()
	dir, err := os.MkdirTemp("", "rondo-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	rondo = filepath.Join(dir, "rondo")
	out, err := exec.Command("go", "build", "-o", rondo, "github.com/rondo-rl/rondo/cmd/rondo").CombinedOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "build rondo: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// needSandbox skips a test where the kernel gives no sandbox.
func needSandbox(t *testing.T) {
	t.Helper()
	if _, err := sandbox.Probe(t.Context()); err != nil {
		if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
			t.Fatalf("this machine gives no sandbox: %v", err)
		}
		t.Skipf("this machine gives no sandbox: %v", err)
	}
}

// process is a rondo process that ends with the test.
type process struct {
	cmd    *exec.Cmd
	output *output
	done   chan struct{}
}

// output collects what a process prints while the test looks at it.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(rondo, args...), output: &output{}, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.cmd.Wait(); close(p.done) }()
	t.Cleanup(p.kill)
	return p
}

// kill ends the process as a power cut would.
func (p *process) kill() {
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
}

// stop asks the process to end.
func (p *process) stop(t *testing.T) {
	t.Helper()
	p.cmd.Process.Signal(os.Interrupt)
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatalf("rondo did not stop:\n%s", p.output)
	}
}

// run runs a command to its end and decodes the last line that it prints.
func run(ctx context.Context, into any, args ...string) error {
	cmd := exec.CommandContext(ctx, rondo, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if into != nil && len(out) > 0 {
		if jsonErr := json.Unmarshal([]byte(lines[len(lines)-1]), into); jsonErr != nil && err == nil {
			err = fmt.Errorf("last line %q: %w", lines[len(lines)-1], jsonErr)
		}
	}
	if err != nil {
		return fmt.Errorf("rondo %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return nil
}

// said is what a command prints.
func said(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), rondo, args...).Output()
	if err != nil {
		t.Fatalf("rondo %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}

func mustRun(t *testing.T, into any, args ...string) {
	t.Helper()
	if err := run(t.Context(), into, args...); err != nil {
		t.Fatal(err)
	}
}

// patience bounds how long a test waits: a busy machine is slow, and what never comes never comes.
const patience = 5 * time.Minute

// eventually repeats a check until it passes.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", patience, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}
