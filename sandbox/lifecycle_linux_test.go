package sandbox_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

func init() {
	// An owner of three sandboxes of a level, two marked processes in each, until it is killed.
	actors["owner"] = func() {
		if interval, err := time.ParseDuration(os.Getenv("REAP")); err == nil {
			sandbox.ReapEvery(interval)
		}
		for range 3 {
			sb, err := sandbox.NewAt(context.Background(), os.Getenv("LEVEL"), sandbox.Spec{Name: "orphan"})
			if err == nil {
				_, err = sb.Exec(context.Background(),
					sandbox.Command{Argv: []string{"sh", "-c", "setsid sleep $MARK & sleep $MARK"},
						Env: map[string]string{"MARK": os.Getenv("MARK")}, Background: true})
			}
			if err != nil {
				fmt.Println("none", err)
				return
			}
		}
		fmt.Println(os.Getenv("LEVEL"), nil)
		select {}
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
		result, runErr := sb.Exec(context.Background(),
			sh("pwd; cat /app/file; ls /app; echo x > /tmp/y && cat /tmp/y; (setsid sleep 500 &)"))
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
	const patience = 5 * time.Minute // a busy machine is slow
	for deadline := time.Now().Add(patience); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestCloseKillsEverything(t *testing.T) {
	sb := sandboxtest.New(t, sandbox.Spec{})
	mark := fmt.Sprintf("70%d", os.Getpid())
	run(t, sb, sandbox.Command{Argv: []string{"sh", "-c",
		"(setsid sleep " + mark + " &) ; setsid nohup sleep " + mark + " & exec sleep " + mark}, Background: true})
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

// TestKilledOwnerLeavesNothing: processes, mounts, control groups and folders of an owner that is
// killed are gone after the reaper's turn.
func TestKilledOwnerLeavesNothing(t *testing.T) {
	sandboxtest.Require(t)
	for level, min := range map[string]int{sandbox.IsolationNamespaces: 0, sandbox.IsolationLandlock: 1,
		sandbox.IsolationNone: 2} {
		t.Run(level, func(t *testing.T) {
			if level == sandbox.IsolationLandlock && os.Geteuid() != 0 {
				t.Skip("the level is for root")
			}
			if level == sandbox.IsolationLandlock {
				needLandlock(t)
			}
			mark, folder := fmt.Sprintf("71%d%d", min, os.Getpid()), temporary(t)
			t.Setenv("TMPDIR", folder)
			command, isolation := owner(t, "MARK="+mark, "LEVEL="+level)
			if isolation != level {
				t.Fatalf("isolation %q", isolation)
			}
			eventually(t, "six processes run", func() bool { return len(marked(t, mark)) == 6 })
			if len(sandbox.GroupsOf(command.Process.Pid)) == 0 && sandbox.LimitsByCgroup() {
				t.Error("there are no control groups that could be left")
			}
			if err := command.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = command.Wait()
			eventually(t, "no process is left", func() bool { return len(marked(t, mark)) == 0 })
			sandbox.Reap()
			if left := sandbox.GroupsOf(command.Process.Pid); len(left) > 0 {
				t.Errorf("control groups left: %v", left)
			}
			if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
				t.Errorf("folders left: %v, %v", left, err)
			}
			if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil ||
				bytes.Contains(mounts, []byte(folder)) {
				t.Errorf("mounts left, %v:\n%s", err, mounts)
			}
		})
	}
}

// temporary is a folder that every user may enter and write to, as a system's
// own for temporary files is.
func temporary(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("/tmp", "rondo-test")
	if err == nil {
		err = os.Chmod(folder, 0o777|os.ModeSticky)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

// TestOwnersReapFromTimeToTime: an owner that lives clears what another one leaves behind
// later, and nothing of its own.
func TestOwnersReapFromTimeToTime(t *testing.T) {
	sandboxtest.Require(t)
	folder, mark := temporary(t), fmt.Sprintf("72%d", os.Getpid())
	// this process looks into its own folder for temporary files only when it makes a sandbox
	t.Setenv("TMPDIR", folder)
	alive, _ := owner(t, "MARK="+mark, "LEVEL="+sandbox.IsolationNone, "REAP=20ms")
	killed, _ := owner(t, "MARK="+mark, "LEVEL="+sandbox.IsolationNone)
	eventually(t, "both run", func() bool { return len(marked(t, mark)) == 12 })
	folders := func(of *exec.Cmd) []string {
		found, _ := filepath.Glob(filepath.Join(folder, fmt.Sprintf("rondo-sandbox-*-%d-*", of.Process.Pid)))
		return found
	}
	if len(folders(alive)) != 3 || len(folders(killed)) != 3 {
		t.Fatalf("folders %v, %v", folders(alive), folders(killed))
	}
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait()
	eventually(t, "the dead owner's folders are gone", func() bool { return len(folders(killed)) == 0 })
	eventually(t, "and its processes", func() bool { return len(marked(t, mark)) == 6 })
	if len(folders(alive)) != 3 {
		t.Errorf("the living owner's folders: %v", folders(alive))
	}
}

// TestForeignOwners: of what owners in other process namespaces made, which share the control
// groups, only old empty groups are removed.
func TestForeignOwners(t *testing.T) {
	sandboxtest.Require(t)
	old, recent, full := sandbox.ForeignGroup(t, 1, 2*time.Hour), sandbox.ForeignGroup(t, 2, time.Minute),
		sandbox.ForeignGroup(t, 3, 2*time.Hour)
	command := exec.Command("sleep", "600")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	}()
	if err := os.WriteFile(filepath.Join(full, "cgroup.procs"),
		[]byte(strconv.Itoa(command.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	sandbox.Reap()
	for folder, left := range map[string]bool{old: false, recent: true, full: true} {
		t.Run(folder, func(t *testing.T) {
			if _, err := os.Stat(folder); (err == nil) != left {
				t.Errorf("%s: %v", folder, err)
			}
		})
	}
	if members, err := os.ReadFile(filepath.Join(full, "cgroup.procs")); err != nil ||
		string(members) != strconv.Itoa(command.Process.Pid)+"\n" {
		t.Errorf("the group of another namespace has now %q, %v", members, err)
	}
}

func TestRefusedNamespaces(t *testing.T) {
	_, result := inside(t, sandbox.Spec{Name: "outer"}, map[string]string{"RONDO_TEST_ACTOR": "refused"})
	text := string(result.Stdout)
	for _, want := range []string{
		"probe: none: make sandbox probe: start its first process in new namespaces", "operation not permitted",
		"--security-opt seccomp=unconfined",
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
