// Package python runs the tests of the Python client, checks its types, and builds and installs its wheel.
package python

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

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
	if out, err := exec.Command(program, "-c", "import hatchling, mypy, nats, numpy, pyarrow, pytest, safetensors").CombinedOutput(); err != nil {
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
	c := exec.Command(name, args...)
	c.Dir = dir
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

// TestClient runs the client's tests as README.md says, against a plane of this repository's code.
func TestClient(t *testing.T) {
	py := python(t)
	root := repository(t)
	t.Setenv("RONDO_BINARY", program.Binary(t))
	out := run(t, root, py, "-m", "pytest", "-q", "-p", "no:cacheprovider", "clients/python")
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
	run(t, client, python(t), "-m", "mypy", "--cache-dir", t.TempDir())
}

// TestWheel builds the client's wheel and imports all of it in an environment of its own, where the repository is out of sight.
func TestWheel(t *testing.T) {
	py := python(t)
	built := wheel(t, py, "rondo_rl-*-py3-none-any.whl")
	inside, place := environment(t, py)
	run(t, t.TempDir(), py, append(pip, "install", "--no-deps", "--no-index", "--target", place, built)...)
	// What the package requires comes from the interpreter that runs the tests, which may have this package, too.
	t.Setenv("PYTHONPATH", place+":"+run(t, t.TempDir(), py, "-c", "import sys; print(':'.join(p for p in sys.path if 'packages' in p))"))
	out := run(t, t.TempDir(), inside, "-c", `
import importlib, importlib.metadata, pathlib, pkgutil, rondo
place = pathlib.Path(rondo.__file__).parent
for module in pkgutil.walk_packages([str(place)], "rondo."):
    if module.name not in ("rondo.tensors", "rondo.patches", "rondo.weight_transfer", "rondo.nemo_gym", "rondo.harbor", "rondo.verl", "rondo.transfer_queue", "rondo.atropos", "rondo.env_server"):
        importlib.import_module(module.name)
assert (place / "py.typed").exists() and not (place.parent / "tests").exists()
assert importlib.metadata.version("rondo-rl") == rondo.__version__
plugins = [e.load() for e in importlib.metadata.entry_points(group="vllm.general_plugins") if e.name == "rondo"]
assert plugins == [rondo.vllm.register] and plugins[0]() is None  # also where vLLM has no backends
assert importlib.metadata.metadata("rondo-rl")["License-Expression"] == "Apache-2.0"
print(place)`)
	if !strings.HasPrefix(out, place) {
		t.Errorf("the package was imported from %s", out)
	}
}

// TestWheelWithTheProgram: the wheel of a platform has the program and the first process of its sandboxes, which are found on the path once it is installed.
func TestWheelWithTheProgram(t *testing.T) {
	py := python(t)
	t.Setenv("RONDO_WHEEL_PROGRAMS", filepath.Dir(program.Binary(t)))
	t.Setenv("RONDO_WHEEL_PLATFORM", strings.ReplaceAll(run(t, t.TempDir(), py, "-c", "import sysconfig; print(sysconfig.get_platform())"), "-", "_"))
	built := wheel(t, py, "rondo_rl-*-py3-none-linux_*.whl")
	inside, _ := environment(t, py)
	bin := filepath.Dir(inside)
	run(t, t.TempDir(), py, append(pip, "--python", inside, "install", "--no-deps", "--no-index", built)...)
	if out := run(t, t.TempDir(), filepath.Join(bin, "rondo"), "version"); !strings.HasPrefix(out, "rondo ") {
		t.Errorf("rondo version prints %q", out)
	}
	if info, err := os.Stat(filepath.Join(bin, "rondo-sandbox-init")); err != nil || info.Mode().Perm()&0o111 == 0 {
		t.Errorf("beside rondo: %v, %v", info, err)
	}
	t.Setenv("RONDO_WHEEL_PLATFORM", "")
	if out, err := exec.Command(py, append(pip, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", t.TempDir(), client)...).CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "RONDO_WHEEL_PLATFORM") {
		t.Errorf("programs without a platform: %v\n%s", err, out)
	}
}

var pip = []string{"-m", "pip", "--quiet", "--disable-pip-version-check", "--no-cache-dir"}

// wheel builds a wheel, of which the pattern finds one.
func wheel(t *testing.T, py, pattern string) string {
	t.Helper()
	dir := t.TempDir()
	source, err := filepath.Abs(client) // where git's rules hold, which once left the package out of its wheel
	if err != nil {
		t.Fatal(err)
	}
	run(t, dir, py, append(pip, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", dir, source)...)
	wheels, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(wheels) != 1 {
		t.Fatalf("wheels %v: %v", wheels, err)
	}
	return wheels[0]
}

// environment is a Python without packages: its interpreter, and where packages go.
func environment(t *testing.T, py string) (inside, place string) {
	t.Helper()
	dir := t.TempDir()
	run(t, dir, py, "-m", "venv", "--without-pip", dir)
	inside = filepath.Join(dir, "bin", "python")
	return inside, run(t, dir, inside, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
}
