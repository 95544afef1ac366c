package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

func sh(script string) sandbox.Command { return sandbox.Command{Argv: []string{"sh", "-c", script}} }

// run runs a command that must not fail for reasons of the sandbox.
func run(t testing.TB, sb *sandbox.Sandbox, c sandbox.Command) sandbox.Result {
	t.Helper()
	result, err := sb.Exec(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// output runs a script that must succeed.
func output(t testing.TB, sb *sandbox.Sandbox, script string) string {
	t.Helper()
	result := run(t, sb, sh(script))
	if result.ExitCode != 0 {
		t.Fatalf("%s: exit code %d: %s", script, result.ExitCode, result.Stderr)
	}
	return strings.TrimSpace(string(result.Stdout))
}

func TestExec(t *testing.T) {
	sb := sandboxtest.New(t, sandbox.Spec{Name: "exec", Env: map[string]string{"FROM_SPEC": "a", "BOTH": "spec"}})
	output(t, sb, "mkdir sub; echo hello > sub/file")
	tests := []struct {
		name           string
		command        sandbox.Command
		exit           int
		stdout, stderr string
	}{
		{"output", sh("echo out; echo err >&2"), 0, "out\n", "err\n"},
		{"exit code", sh("exit 7"), 7, "", ""},
		{"signal", sh("kill -TERM $$"), 143, "", ""},
		{"input", sandbox.Command{Argv: []string{"cat"}, Stdin: []byte("some input")}, 0, "some input", ""},
		{"no input", sandbox.Command{Argv: []string{"cat"}}, 0, "", ""},
		{"input that nobody reads", sandbox.Command{Argv: []string{"true"}, Stdin: make([]byte, 1<<20)}, 0, "", ""},
		{"environment", sandbox.Command{Argv: []string{"sh", "-c", "echo $FROM_SPEC $BOTH $HOME"},
			Env: map[string]string{"BOTH": "command"}}, 0, "a command /root\n", ""},
		{"folder", sandbox.Command{Argv: []string{"cat", "file"}, Dir: "sub"}, 0, "hello\n", ""},
		{"absolute folder", sandbox.Command{Argv: []string{"pwd"}, Dir: "/tmp"}, 0, "/tmp\n", ""},
		{"workspace", sandbox.Command{Argv: []string{"pwd"}}, 0, "/app\n", ""},
		{"program not there", sandbox.Command{Argv: []string{"no-such-program"}}, 127, "",
			"no-such-program: command not found\n"},
		{"folder not there", sandbox.Command{Argv: []string{"true"}, Dir: "/nowhere"}, 126, "",
			"no such working folder: /nowhere\n"},
		{"not executable", sandbox.Command{Argv: []string{"/app/sub/file"}}, 126, "",
			"/app/sub/file: cannot start: start /app/sub/file: permission denied\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			result := run(t, sb, test.command)
			if result.ExitCode != test.exit || string(result.Stdout) != test.stdout ||
				string(result.Stderr) != test.stderr {
				t.Errorf("got exit %d, stdout %q, stderr %q; want %d, %q, %q", result.ExitCode, result.Stdout,
					result.Stderr, test.exit, test.stdout, test.stderr)
			}
			if result.TimedOut || result.OutOfMemory || result.OutputExceeded || result.DroppedBytes != 0 {
				t.Errorf("a limit was reported: %+v", result)
			}
		})
	}
}

func TestExecRefusesSenselessCommands(t *testing.T) {
	sb := sandboxtest.New(t, sandbox.Spec{})
	for _, argv := range [][]string{nil, {""}, {"echo", "a\x00b"}} {
		if _, err := sb.Exec(t.Context(), sandbox.Command{Argv: argv}); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("Exec(%q) = %v, want ErrInvalid", argv, err)
		}
	}
}

func TestCommandsRunAtTheSameTime(t *testing.T) {
	sb := sandboxtest.New(t, sandbox.Spec{})
	output(t, sb, "mkfifo /tmp/a /tmp/b")
	// Each of the two waits for the other, so they only end when both run.
	var group sync.WaitGroup
	for _, script := range []string{"echo x > /tmp/a; cat /tmp/b", "cat /tmp/a; echo x > /tmp/b"} {
		group.Go(func() {
			if result, err := sb.Exec(t.Context(), sh(script)); err != nil || result.ExitCode != 0 {
				t.Errorf("%s: %v, %+v", script, err, result)
			}
		})
	}
	group.Wait()
}

func TestWallLimit(t *testing.T) {
	sb := sandboxtest.New(t, sandbox.Spec{Limits: sandbox.Limits{Wall: 300 * time.Millisecond}})
	for name, script := range map[string]string{
		"sleeps":          "sleep 600",
		"ignores signals": "trap '' TERM INT HUP; while :; do sleep 1; done",
		"with daemons":    "(setsid sleep 601 &); setsid nohup sleep 602 & sh -c 'sleep 603 & sleep 604 &' ; sleep 605",
	} {
		t.Run(name, func(t *testing.T) {
			result := run(t, sb, sh(script))
			if !result.TimedOut || result.ExitCode < 128 {
				t.Errorf("timed out: %v, exit code %d; want a time-out and a signal", result.TimedOut, result.ExitCode)
			}
			onlyInitRuns(t, sb)
		})
	}
}

// onlyInitRuns checks, from inside, that no process is left but the one that looks.
func onlyInitRuns(t *testing.T, sb *sandbox.Sandbox) {
	t.Helper()
	// The shell itself lists; $$ is its number. Zombies have no command line.
	look := sh(`for p in /proc/[0-9]*; do n=${p#/proc/}; [ $n = 1 ] || [ $n = $$ ] || cat $p/cmdline 2>/dev/null | tr '\0' ' '; done`)
	look.Wall = time.Minute // the sandbox's own limit may be short
	if result := run(t, sb, look); result.ExitCode != 0 || len(result.Stdout) > 0 {
		t.Errorf("exit code %d, still running: %s", result.ExitCode, result.Stdout)
	}
}

func TestLeftoversAreKilledAndBackgroundStays(t *testing.T) {
	sb := sandboxtest.New(t, sandbox.Spec{})
	background := run(t, sb, sandbox.Command{Argv: []string{"sh", "-c", "echo started; sleep 700"}, Background: true})
	if background.PID <= 1 || background.Log == "" {
		t.Fatalf("background command: %+v", background)
	}
	begin := time.Now()
	result := run(t, sb, sh("setsid sleep 701 & (setsid sleep 702 &) ; echo done"))
	if string(result.Stdout) != "done\n" || result.TimedOut {
		t.Errorf("%+v", result)
	}
	if waited := time.Since(begin); waited > 20*time.Second {
		t.Errorf("a daemon that held the output kept the command for %v", waited)
	}
	if got := output(t, sb, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"); strings.Contains(got, "sleep 701") ||
		strings.Contains(got, "sleep 702") || !strings.Contains(got, "sleep 700") {
		t.Errorf("running: %s", got)
	}
	if got := output(t, sb, "cat "+background.Log); got != "started" {
		t.Errorf("log of the background command: %q", got)
	}
	if err := sb.KillAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	onlyInitRuns(t, sb)
}

func TestOutputLimit(t *testing.T) {
	sb := sandboxtest.New(t, sandbox.Spec{Limits: sandbox.Limits{OutputBytes: 1000}})
	result := run(t, sb, sh("i=0; while [ $i -lt 5000 ]; do echo $i; i=$((i+1)); done"))
	text := string(result.Stdout)
	if !strings.HasPrefix(text, "0\n1\n2\n") || !strings.HasSuffix(text, "4998\n4999\n") {
		t.Errorf("head and tail are not kept: %.40q ... %q", text, text[max(0, len(text)-40):])
	}
	const written = 10*2 + 90*3 + 900*4 + 4000*5
	if want := int64(written - 1000); result.DroppedBytes != want ||
		!strings.Contains(text, fmt.Sprintf("%d bytes dropped", want)) {
		t.Errorf("dropped %d bytes, want %d, and said so: %q", result.DroppedBytes, want, text)
	}
	if result.ExitCode != 0 || result.OutputExceeded {
		t.Errorf("a long output ended the command: %+v", result)
	}
	flood := run(t, sb, sh("yes"))
	if !flood.OutputExceeded || flood.ExitCode != 137 || len(flood.Stdout) > 1100 {
		t.Errorf("flood: exceeded %v, exit code %d, %d bytes", flood.OutputExceeded, flood.ExitCode, len(flood.Stdout))
	}
}

func TestCancel(t *testing.T) {
	sb := sandboxtest.New(t, sandbox.Spec{})
	ctx, cancel := context.WithCancel(t.Context())
	output(t, sb, "mkfifo /tmp/started")
	failed := make(chan error)
	go func() {
		_, err := sb.Exec(ctx, sh("setsid sleep 800 & echo > /tmp/started; sleep 801"))
		failed <- err
	}()
	output(t, sb, "cat /tmp/started")
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("Exec = %v, want context.Canceled", err)
	}
	onlyInitRuns(t, sb)
}

func TestClosed(t *testing.T) {
	sb := sandboxtest.New(t, sandbox.Spec{})
	failed := make(chan error)
	output(t, sb, "mkfifo /tmp/started")
	go func() {
		_, err := sb.Exec(t.Context(), sh("echo > /tmp/started; sleep 900"))
		failed <- err
	}()
	output(t, sb, "cat /tmp/started")
	if err := sb.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("the command that ran: %v, want ErrClosed", err)
	}
	if _, err := sb.Exec(t.Context(), sh("true")); !errors.Is(err, sandbox.ErrClosed) {
		t.Errorf("a command afterwards: %v, want ErrClosed", err)
	}
}

func TestLargeMessages(t *testing.T) {
	sb := sandboxtest.New(t, sandbox.Spec{})
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	if err := sb.WriteFile(t.Context(), "large", data, 0); err != nil {
		t.Fatal(err)
	}
	got, err := sb.ReadFile(t.Context(), "large", int64(len(data)))
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
	if _, err := sb.ReadFile(t.Context(), "large", int64(len(data))-1); !errors.Is(err, sandbox.ErrTooLarge) {
		t.Errorf("one byte too many: %v, want ErrTooLarge", err)
	}
}

// TestStop: a command that its owner ends has what it wrote, and the sandbox what it left.
func TestStop(t *testing.T) {
	sb := sandboxtest.New(t, sandbox.Spec{Name: "stop"})
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for t.Context().Err() == nil {
			if there, err := sb.ReadFile(t.Context(), "a.txt", 100); err == nil && len(there) > 0 {
				return
			}
		}
	}()
	result := run(t, sb, sandbox.Command{Argv: []string{"sh", "-c",
		"echo said; setsid sh -c 'echo left > a.txt; sleep 3600' & sleep 3600"}, Stop: stop, Wall: time.Minute})
	if !result.Stopped || result.TimedOut || string(result.Stdout) != "said\n" || result.Leftovers == 0 {
		t.Errorf("%+v", result)
	}
	if left := output(t, sb, "cat a.txt"); left != "left" {
		t.Errorf("it left %q", left)
	}
	if result := run(t, sb, sandbox.Command{Argv: []string{"true"}, Stop: make(chan struct{})}); result.Stopped ||
		result.ExitCode != 0 {
		t.Errorf("one that nobody ends: %+v", result)
	}
}
