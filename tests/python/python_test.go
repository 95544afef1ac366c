// Package python runs the tests of the Python client, checks its types, and
// builds and installs its wheel.
package python

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/storage/storagetest"
	"github.com/rondo-rl/rondo/tests/program"
)

const client = "../../clients/python"

// python is an interpreter that has the modules of clients/python/requirements.txt.
func python(t *testing.T) string {
	t.Helper()
	program := os.Getenv("RONDO_PYTHON")
	if program == "" {
		program = "python3"
	}
	if out, err := exec.Command(program, "-c",
		"import hatchling, mypy, nats, numpy, pyarrow, pytest, safetensors, xdist").CombinedOutput(); err != nil {
		why := program + " lacks the modules of clients/python/requirements.txt (or set RONDO_PYTHON): " + string(out)
		if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	return program
}

// run runs a program in a folder to its end and gives what it prints.
func run(t *testing.T, dir string, name string, args ...string) string {
	t.Helper()
	return runWith(t, nil, dir, name, args...)
}

// runWith runs a program with more variables in its environment.
func runWith(t *testing.T, env []string, dir string, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Dir = dir
	c.Env = append(c.Environ(), env...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return string(bytes.TrimSpace(out))
}

func repository(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

var passed = regexp.MustCompile(`(\d+) passed`)

// TestClient runs the client's tests as README.md says, against planes of this repository's code.
// On a machine with more than two processors several files are tested at once, each by one process,
// as a file's tests share fixtures. Each has planes of its own, which starve those of other tests
// where there are more of them.
func TestClient(t *testing.T) {
	t.Parallel()
	py := python(t)
	root := repository(t)
	// a test that stands still says where
	stuck := []string{"-o", "faulthandler_timeout=300", "-o", "faulthandler_exit_on_timeout=true"}
	processes := strconv.Itoa(max(1, min(runtime.GOMAXPROCS(0)/2, 8)))
	args := append([]string{"-m", "pytest", "-q", "-p", "no:cacheprovider", "clients/python", "-n",
		processes, "--dist", "loadfile",
		"--no-loadscope-reorder", "--max-worker-restart", "0", "--durations", "10"}, stuck...)
	env := []string{"RONDO_BINARY=" + program.Binary(t)}
	if s3dev, err := storagetest.Tool("s3dev"); err == nil { // else pytest says what is missing
		env = append(env, "S3DEV_BINARY="+s3dev)
	}
	out := runWith(t, env, root, py, args...)
	t.Log(out)
	found := passed.FindStringSubmatch(out)
	if found == nil {
		t.Fatalf("no test passed:\n%s", out)
	}
	if n, _ := strconv.Atoi(found[1]); n < 100 {
		t.Errorf("only %d tests ran:\n%s", n, out)
	}
	if os.Getenv("RONDO_REQUIRE_ALL") == "1" && strings.Contains(out, "skipped") {
		t.Errorf("tests were skipped:\n%s", out)
	}
}

func TestTypes(t *testing.T) {
	t.Parallel()
	run(t, client, python(t), "-m", "mypy", "--cache-dir", t.TempDir())
}
