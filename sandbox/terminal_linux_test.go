package sandbox_test

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

// screen reads a terminal until it shows a text.
func screen(t *testing.T, terminal *sandbox.Terminal, until string) {
	t.Helper()
	var shown []byte
	buffer := make([]byte, 4096)
	for !bytes.Contains(shown, []byte(until)) {
		n, err := terminal.Read(buffer)
		if shown = append(shown, buffer[:n]...); err != nil {
			t.Fatalf("%q does not come: %v\n%s", until, err, shown)
		}
	}
}

// TestTerminal talks to a shell as a person would.
func TestTerminal(t *testing.T) {
	t.Parallel()
	sb := sandboxtest.New(t, sandbox.Spec{Name: "terminal", Env: map[string]string{"PS1": "ready> "}})
	overdue := time.AfterFunc(time.Minute, func() { sb.Close() }) // whoever waits for what does not come is told
	defer overdue.Stop()
	terminal, err := sb.Terminal(t.Context(), sandbox.Command{Argv: []string{"sh", "-i"}}, 30, 90)
	if err != nil {
		t.Fatal(err)
	}
	keys := func(text string) {
		t.Helper()
		if _, err := terminal.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	screen(t, terminal, "ready> ")
	keys("stty size; tty\n")
	screen(t, terminal, "30 90\r\n/dev/pts/0")
	if err := terminal.Resize(40, 100); err != nil {
		t.Fatal(err)
	}
	keys("stty size; grep CapEff /proc/self/status\n")
	screen(t, terminal, "40 100\r\nCapEff:\t0000000000000000\r\nready> ")
	keys("cat\n")
	screen(t, terminal, "cat\r\n")
	keys("said\n")
	screen(t, terminal, "said\r\nsaid\r\n") // once by the terminal, once by cat, which has it now
	keys("\x03")                            // Ctrl-C
	screen(t, terminal, "ready> ")
	if got := output(t, sb, "pwd"); got != "/app" { // others work meanwhile
		t.Errorf("pwd is %s", got)
	}
	keys("(trap '' HUP; setsid sleep 1000) & exit 7\n") // it keeps the terminal
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, terminal)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil || terminal.ExitCode() != 7 {
			t.Errorf("exit code %d, %v", terminal.ExitCode(), err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the terminal of a shell that has ended stays open")
	}
}
