package sandbox_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

func init() {
	// An owner of a sandbox with a marked process inside, until it is killed.
	actors["owner"] = func() {
		if os.Getenv("INSECURE") != "" {
			sandbox.RefuseNamespaces()
		}
		sb, err := sandbox.New(context.Background(), sandbox.Spec{Name: "orphan", AllowInsecure: os.Getenv("INSECURE") != ""})
		if err == nil {
			_, err = sb.Exec(context.Background(), sandbox.Command{Argv: []string{"sh", "-c", "setsid sleep $MARK & sleep $MARK"}, Env: map[string]string{"MARK": os.Getenv("MARK")}, Background: true})
		}
		if err == nil && os.Getenv("ONCE") != "" {
			err = sb.Close()
		}
		fmt.Println(sb.Isolation(), err)
		if os.Getenv("ONCE") == "" {
			select {}
		}
	}
	// What a system that refuses namespaces looks like: a sandbox's own inside.
	actors["refused"] = func() {
		report, err := sandbox.Probe(context.Background())
		fmt.Printf("probe: %s: %v\n", report.Isolation, err)
		sb, err := sandbox.New(context.Background(), sandbox.Spec{Name: "inner", AllowInsecure: true})
		if err != nil {
			fmt.Println("insecure:", err)
			return
		}
		defer sb.Close()
		err = sb.WriteFile(context.Background(), "file", []byte("content"), 0)
		result, runErr := sb.Exec(context.Background(), sh("pwd; cat /app/file; ls /app; echo x > /tmp/y && cat /tmp/y; (setsid sleep 500 &)"))
		fmt.Printf("insecure: %s %v %v: %s%s\n", sb.Isolation(), err, runErr, result.Stdout, result.Stderr)
	}
}

// marked lists the processes of the host that run "sleep <mark>".
func marked(t *testing.T, mark string) []string {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, name := range names {
		if line, err := os.ReadFile(name); err == nil && bytes.Equal(line, []byte("sleep\x00"+mark+"\x00")) {
			found = append(found, name)
		}
	}
	return found
}

// eventually waits for what the kernel or another process does by itself.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestCloseKillsEverything(t *testing.T) {
	sb := sandboxtest.New(t, sandbox.Spec{})
	mark := fmt.Sprintf("70%d", os.Getpid())
	run(t, sb, sandbox.Command{Argv: []string{"sh", "-c", "(setsid sleep " + mark + " &) ; setsid nohup sleep " + mark + " & exec sleep " + mark}, Background: true})
	eventually(t, "three processes run", func() bool { return len(marked(t, mark)) == 3 })
	if err := sb.Close(); err != nil {
		t.Fatal(err)
	}
	if left := marked(t, mark); len(left) > 0 {
		t.Errorf("still running: %v", left)
	}
	if err := sb.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// owner starts this program as another owner and waits for its first line.
func owner(t *testing.T, env ...string) (*exec.Cmd, string) {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), append(env, "RONDO_TEST_ACTOR=owner")...)
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasSuffix(line, "<nil>\n") {
		t.Fatalf("owner: %q, %v", line, err)
	}
	return command, strings.Fields(line)[0]
}

func TestKilledOwnerLeavesNothing(t *testing.T) {
	sandboxtest.Require(t)
	mark := fmt.Sprintf("71%d", os.Getpid())
	command, _ := owner(t, "MARK="+mark)
	eventually(t, "two processes run", func() bool { return len(marked(t, mark)) == 2 })
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait()
	eventually(t, "no process is left", func() bool { return len(marked(t, mark)) == 0 })
	// The control groups are empty now, and the next owner removes them.
	left := sandbox.GroupsOf(command.Process.Pid)
	once, _ := owner(t, "MARK=1", "ONCE=1")
	_ = once.Wait()
	if now := sandbox.GroupsOf(command.Process.Pid); len(now) > 0 {
		t.Errorf("control groups left: %v, before the next start: %v", now, left)
	}
}

func TestKilledOwnerWithoutIsolationLeavesNothing(t *testing.T) {
	mark := fmt.Sprintf("72%d", os.Getpid())
	folder := t.TempDir()
	sb, isolation := owner(t, "MARK="+mark, "INSECURE=1", "TMPDIR="+folder)
	if isolation != "none" {
		t.Fatalf("isolation %q", isolation)
	}
	eventually(t, "two processes run", func() bool { return len(marked(t, mark)) == 2 })
	if err := sb.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = sb.Wait()
	eventually(t, "no process is left", func() bool { return len(marked(t, mark)) == 0 })
	once, _ := owner(t, "MARK=1", "ONCE=1", "INSECURE=1", "TMPDIR="+folder)
	_ = once.Wait()
	if left, _ := os.ReadDir(folder); len(left) > 0 {
		t.Errorf("private folders left: %v", left)
	}
}

func TestRefusedNamespaces(t *testing.T) {
	_, result := inside(t, sandbox.Spec{Name: "outer"}, map[string]string{"RONDO_TEST_ACTOR": "refused"})
	text := string(result.Stdout)
	for _, want := range []string{
		"probe: none: make sandbox probe: start its first process in new namespaces", "operation not permitted", "--security-opt seccomp=unconfined",
		"insecure: none <nil> <nil>: /app\ncontentfile\nx\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %q in:\n%s%s", want, text, result.Stderr)
		}
	}
}

func TestSandboxesDoNotSeeOneAnother(t *testing.T) {
	a, b := sandboxtest.New(t, sandbox.Spec{Name: "a"}), sandboxtest.New(t, sandbox.Spec{Name: "b"})
	output(t, a, "echo secret > /tmp/file; echo secret > file")
	if got := output(t, b, "ls -A /tmp /app; hostname"); strings.Contains(got, "file") || !strings.HasSuffix(got, "b") {
		t.Errorf("b sees %q", got)
	}
}

func TestProbe(t *testing.T) {
	sandboxtest.Require(t)
	report, err := sandbox.Probe(t.Context())
	if err != nil || report.Isolation != "namespaces" || report.Filesystem != fileSystem() {
		t.Errorf("%+v, %v", report, err)
	}
}
