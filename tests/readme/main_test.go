// Package readme runs what README.md and the examples say.
package readme

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
)

// rondo is the binary under test; root is the repository.
var rondo, root string

func TestMain(m *testing.M) {
	sandbox.Main()
	code, err := testMain(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func testMain(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "rondo-readme-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if root, err = filepath.Abs("../.."); err != nil {
		return 1, err
	}
	rondo = filepath.Join(dir, "rondo")
	if out, err := exec.Command("go", "build", "-o", rondo, "github.com/rondo-rl/rondo/cmd/rondo").CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build rondo: %w\n%s", err, out)
	}
	return m.Run(), nil
}

// missing ends a test that needs what this machine lacks.
func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

func needSandbox(t *testing.T) {
	t.Helper()
	if _, err := sandbox.Probe(t.Context()); err != nil {
		missing(t, "this machine gives no sandbox: %v", err)
	}
}

// python is an interpreter that has the modules of examples/requirements.txt, this repository's client, and some more.
func python(t *testing.T, modules ...string) string {
	t.Helper()
	t.Setenv("PYTHONPATH", filepath.Join(root, "clients/python"))
	program := os.Getenv("RONDO_PYTHON")
	if program == "" {
		program = "python3"
	}
	if out, err := exec.Command(program, "-c", "import "+strings.Join(append(modules, "nats", "pyarrow"), ", ")).CombinedOutput(); err != nil {
		missing(t, "%s lacks the modules of examples/requirements.txt (or set RONDO_PYTHON): %v\n%s", program, err, out)
	}
	return program
}

// command runs a program to its end in a folder and gives what it prints.
func command(dir string, name string, args ...string) (string, error) {
	c := exec.Command(name, args...)
	c.Dir = dir
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(name), strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out), err
}

// ask runs a rondo command and decodes the JSON that it prints.
func ask(dir string, into any, args ...string) error {
	out, err := command(dir, rondo, append(args, "--json")...)
	if err == nil {
		err = json.Unmarshal([]byte(out), into)
	}
	return err
}

// background starts a program that ends with the test, and gives its output so far.
func background(t *testing.T, dir, name string, args ...string) (output func() string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "output"))
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(name, args...)
	c.Dir, c.Stdout, c.Stderr = dir, log, log
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		c.Wait()
		log.Close()
	})
	return func() string {
		text, _ := os.ReadFile(log.Name())
		return string(text)
	}
}

// patience bounds how long a test waits: a busy machine is slow, and what never comes never comes.
const patience = 5 * time.Minute

// eventually repeats a check until it passes.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", patience, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// quickTasks is a pack of the sample tasks that need no tool chain.
func quickTasks(t *testing.T) string {
	t.Helper()
	pack := t.TempDir()
	for _, name := range []string{"shell-slugify", "shell-invoice"} {
		if err := os.CopyFS(filepath.Join(pack, name), os.DirFS(filepath.Join(root, "tasks/sample", name))); err != nil {
			t.Fatal(err)
		}
	}
	return pack
}
