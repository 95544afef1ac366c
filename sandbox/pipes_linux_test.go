package sandbox_test

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

// TestPipes talks to a program, which commands beside it leave alone, and which ends
// with all that it started.
func TestPipes(t *testing.T) {
	t.Parallel()
	sb := sandboxtest.New(t, sandbox.Spec{Name: "pipes"})
	overdue := time.AfterFunc(time.Minute, func() { sb.Close() }) // whoever waits for what does not come is told
	defer overdue.Stop()
	pipes := func(command string) *sandbox.Pipes {
		t.Helper()
		p, err := sb.Pipes(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", command}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := pipes("grep CapEff /proc/self/status; echo nobody >&2; while read -r line; do echo \"$line\" again; done")
	lines := bufio.NewReader(p)
	line := func() string {
		t.Helper()
		text, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if got := line(); got != "CapEff:\t0000000000000000\n" {
		t.Errorf("it runs with %q", got)
	}
	for _, said := range []string{"one", strings.Repeat("long", 50_000)} {
		if _, err := io.WriteString(p, said+"\n"); err != nil {
			t.Fatal(err)
		}
		output(t, sb, "true")
		if got := line(); got != said+" again\n" {
			t.Errorf("%.20q is answered %.20q", said, got)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Write([]byte("more")); err == nil {
		t.Error("one that is closed takes input")
	}
	// What outlives the program holds its output, and nobody waits for it.
	left := pipes("yes a warning | head -9999 >&2; echo why >&2; sleep 1000 & exit 7")
	if _, err := left.Read(make([]byte, 10)); !errors.Is(err, io.EOF) || left.ExitCode() != 7 {
		t.Errorf("%v, exit code %d", err, left.ExitCode())
	}
	if got := string(left.Complaint()); !strings.HasSuffix(got, "a warning\nwhy\n") || len(got) > 4<<10 {
		t.Errorf("it complained %q", got)
	}
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	// Closing lets go who waits for a program that neither reads nor writes.
	deaf := pipes("sleep 1000")
	freed := make(chan error, 2)
	go func() { _, err := deaf.Write(make([]byte, 1<<20)); freed <- err }()
	go func() { _, err := deaf.Read(make([]byte, 10)); freed <- err }()
	if err := deaf.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-freed; err == nil {
			t.Error("a program that is closed took or gave something")
		}
	}
	eventually(t, "closing leaves no sleep", func() bool {
		return !strings.Contains(output(t, sb, "cat /proc/[0-9]*/comm 2>/dev/null; true"), "sleep")
	})
	if _, err := sb.Pipes(t.Context(), sandbox.Command{Argv: []string{"no-such-program"}}); !errors.Is(err,
		sandbox.ErrInvalid) || !strings.Contains(err.Error(), "command not found") {
		t.Errorf("what is not there: %v", err)
	}
}
