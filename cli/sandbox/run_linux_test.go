package sandbox

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { clitest.Main(m, New) }

// program is this test program started as rondo.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "RONDO_TEST_MAIN=1")
	return cmd
}

// ended runs a program to its end.
func ended(t *testing.T, cmd *exec.Cmd) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func TestSandboxRun(t *testing.T) {
	sandboxtest.Require(t)
	t.Parallel()
	repo, shown := t.TempDir(), t.TempDir()
	clitest.Write(t, filepath.Join(repo, "src", "file"), "of the snapshot\n")
	clitest.Write(t, filepath.Join(shown, "file"), "of the host\n")
	for _, test := range []struct {
		name           string
		args           []string
		stdin          string
		code           int
		stdout, stderr string // what it must hold
	}{
		{"output and exit code", []string{"--", "sh", "-c", "echo out; echo err >&2; exit 7"}, "", 7, "out\n", "err\n"},
		{"flags of the command", []string{"echo", "--json"}, "", 0, "--json\n", ""},
		{"signal", []string{"--", "sh", "-c", "kill -9 $$"}, "", 137, "", ""},
		{"not there", []string{"no-such-program"}, "", 127, "", "no-such-program: command not found\n"},
		{"snapshot", []string{"--snapshot", repo, "--workdir", "/work", "--", "sh", "-c", "pwd; cat src/file"}, "", 0,
			"/work\nof the snapshot\n", ""},
		{"mount", []string{"--mount", shown, "--mount", shown + ":/mnt/x", "--", "cat", shown + "/file", "/mnt/x/file"},
			"", 0, "of the host\nof the host\n", ""},
		{"environment", []string{"--env", "A=b=c", "--", "sh", "-c", "echo $A"}, "", 0, "b=c\n", ""},
		{"input", []string{"--stdin", "cat"}, "typed", 0, "typed", ""},
		{"no input", []string{"cat"}, "typed", 0, "", ""},
		{"timeout", []string{"--timeout", "200ms", "--", "sleep", "600"}, "", 143, "", "longer than --timeout 200ms"},
		{"weaker isolation is not taken when there is better", []string{"--min-isolation", "none", "--json", "true"},
			"", 0, `"isolation":"namespaces"`, ""},
		{"no such level", []string{"--min-isolation", "vm", "true"}, "", sandboxFailed, "",
			"one of namespaces, landlock, none"},
		{"no such snapshot", []string{"--snapshot", shown + "/no", "true"}, "", 1, "", "--snapshot: stat"},
		{"file for a snapshot", []string{"--snapshot", shown + "/file", "true"}, "", 1, "", "a folder is needed"},
		{"bad size", []string{"--mem", "much", "true"}, "", 1, "", "for example 256m"},
		{"no processes", []string{"--pids", "0", "true"}, "", 1, "", "--pids 0: must be at least 1"},
		{"no time", []string{"--timeout", "0", "true"}, "", 1, "", "--timeout 0s: must be positive"},
		{"too little", []string{"--mem", "1k", "true"}, "", sandboxFailed, "", "at least 16 MiB"},
		{"bad pair", []string{"--env", "A", "true"}, "", 1, "", "NAME=VALUE is needed"},
		{"no command", nil, "", 1, "", "COMMAND is missing"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cmd := program(t, append([]string{"sandbox", "run"}, test.args...)...)
			cmd.Stdin = strings.NewReader(test.stdin)
			code, stdout, stderr := ended(t, cmd)
			if code != test.code || !strings.Contains(stdout, test.stdout) || !strings.Contains(stderr, test.stderr) {
				t.Errorf("exit code %d, want %d\n%s%s", code, test.code, stdout, stderr)
			}
			if test.stderr == "" && stderr != "" || test.stdout == "" && stdout != "" {
				t.Errorf("more was printed:\n%s%s", stdout, stderr)
			}
		})
	}
}

// TestSandboxRunReport: the last line is the report, and says what was killed.
func TestSandboxRunReport(t *testing.T) {
	sandboxtest.Require(t)
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		want func(sandboxReport) bool
	}{
		"well": {[]string{"--", "sh", "-c", "printf out; printf error >&2"}, func(r sandboxReport) bool {
			return r.ExitCode == 0 && r.Stdout == 3 && r.Stderr == 5 && r.Killed == "" && r.FSMode != "" &&
				r.Cgroup != "" && r.CreateMS > 0 && r.RunMS > 0 && r.DestroyMS > 0
		}},
		"time": {[]string{"--timeout", "200ms", "--", "sleep", "600"},
			func(r sandboxReport) bool { return r.ExitCode == 143 && r.Killed == "timeout" && r.RunMS >= 200 }},
		"memory": {[]string{"--mem", "128m", "--disk", "1m", "--", "sh", "-c", "head -c 500m /dev/zero | tail"},
			func(r sandboxReport) bool { return r.Killed == "memory" }},
		"output": {[]string{"--output", "1k", "yes"},
			func(r sandboxReport) bool { return r.Killed == "output" && r.Stdout == 1024 && r.Dropped > 1<<19 }},
		"dropped": {[]string{"--output", "1k", "--", "head", "-c", "5000", "/dev/zero"},
			func(r sandboxReport) bool { return r.Killed == "" && r.Stdout == 1024 && r.Dropped == 3976 }},
		"leftovers": {[]string{"--", "sh", "-c", "setsid sleep 600 & setsid sleep 601 &"},
			func(r sandboxReport) bool { return r.ExitCode == 0 && r.Leftovers == 2 }},
		"failure": {[]string{"--disk", "1k", "true"}, func(r sandboxReport) bool {
			return r.ExitCode == sandboxFailed && strings.Contains(r.Error, "disk limit")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, stdout, stderr := ended(t, program(t, append([]string{"sandbox", "run", "--json"}, test.args...)...))
			lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
			var report sandboxReport
			if err := json.Unmarshal([]byte(lines[len(lines)-1]), &report); err != nil || !test.want(report) {
				t.Errorf("%v: %+v\n%s", err, report, stderr)
			}
		})
	}
}

// TestSandboxRunStreams: output comes while the command runs, and an interruption ends both.
func TestSandboxRunStreams(t *testing.T) {
	sandboxtest.Require(t)
	t.Parallel()
	for name, end := range map[string]struct {
		by   func(*exec.Cmd, io.Closer) error
		code int
	}{
		"interrupted": {func(cmd *exec.Cmd, _ io.Closer) error { return cmd.Process.Signal(syscall.SIGINT) },
			130},
		"nobody reads any more": {func(_ *exec.Cmd, out io.Closer) error { return out.Close() }, 141},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := program(t, "sandbox", "run", "--", "sh", "-c", "while echo tick; do sleep 0.01; done")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "tick\n" {
				t.Errorf("first line %q, %v", line, err)
			}
			if err := end.by(cmd, out); err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, out)
			if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != end.code {
				t.Errorf("exit code %d, want %d", cmd.ProcessState.ExitCode(), end.code)
			}
		})
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]app.Size{"1": 1, "64k": 64 << 10, "256M": 256 << 20, "2g": 2 << 30, "": 0,
		"-1": 0, "1t": 0, "99999999999g": 0, "1.5m": 0, "m": 0} {
		t.Run(text, func(t *testing.T) {
			var s app.Size
			err := s.Set(text)
			if s != want || (err == nil) != (want != 0) {
				t.Errorf("%q is %d, %v", text, s, err)
			}
			var again app.Size
			if want != 0 && (again.Set(s.String()) != nil || again != s) {
				t.Errorf("%q is printed as %q", text, s)
			}
		})
	}
}
