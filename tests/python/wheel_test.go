package python

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/tests/program"
	"github.com/rondo-rl/rondo/tests/wheel"
)

// TestWheel builds the client's wheel and imports all of it in an environment of its own, where the
// repository is out of sight.
func TestWheel(t *testing.T) {
	t.Parallel()
	py := python(t)
	built := build(t, py, client, "rondo_rl-*-py3-none-any.whl")
	if scripts := wheel.Check(t, built); len(scripts) > 0 {
		t.Errorf("a wheel for every system has %q", scripts)
	}
	inside := wheel.Environment(t, py)
	wheel.Install(t, py, inside, built)
	place := wheel.Run(t, t.TempDir(), inside, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
	out := importing(t, py, inside, `
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

// TestWheelOfTheSdist: the sdist has what the wheel is made of, and the same sources give the same
// bytes, whenever and wherever they were written.
func TestWheelOfTheSdist(t *testing.T) {
	t.Parallel()
	py := python(t)
	sdist := build(t, py, client, "rondo_rl-*.tar.gz")
	unpacked := t.TempDir()
	wheel.Run(t, unpacked, "tar", "--extract", "--strip-components=1", "--touch", "--file", sdist)
	const name = "rondo_rl-*-py3-none-any.whl"
	first, second := contents(t, build(t, py, client, name)), contents(t, build(t, py, unpacked, name))
	if first != second {
		t.Error("the wheel of the sdist is not that of the sources")
	}
	if contents(t, sdist) != contents(t, build(t, py, unpacked, filepath.Base(sdist))) {
		t.Error("the sdist of the sdist is another one")
	}
}

// TestWheelWithTheProgram: the wheel of a platform puts the program and the first process of its
// sandboxes beside each other. Both run where there is no Go.
func TestWheelWithTheProgram(t *testing.T) {
	t.Parallel()
	py := python(t)
	program.NeedSandbox(t)
	platform := strings.ReplaceAll(run(t, t.TempDir(), py, "-c", "import sysconfig; print(sysconfig.get_platform())"),
		"-", "_")
	programs := func(folder string) string { return "RONDO_WHEEL_PROGRAMS=" + folder }
	built := build(t, py, client, "rondo_rl-*-py3-none-"+platform+".whl", programs(filepath.Dir(program.Binary(t))),
		"RONDO_WHEEL_PLATFORM="+platform)
	if scripts := wheel.Check(t, built); !slices.Equal(scripts, []string{"rondo", "rondo-sandbox-init"}) {
		t.Errorf("the wheel has %q", scripts)
	}
	inside := wheel.Environment(t, py)
	wheel.Install(t, py, inside, built)
	rondo := filepath.Join(filepath.Dir(inside), "rondo")
	if out := wheel.Run(t, t.TempDir(), rondo, "--version"); !strings.HasPrefix(out, "rondo ") {
		t.Errorf("rondo --version prints %q", out)
	}
	version := importing(t, py, inside, "import rondo; print(rondo.__version__)")
	if !strings.Contains(filepath.Base(built), "-"+version+"-") {
		t.Errorf("%s has the module of %s", built, version)
	}
	// Doctor runs a program in a sandbox. Its other findings are those of the machine.
	doctor := exec.Command(rondo, "doctor", "--dir", t.TempDir())
	doctor.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + t.TempDir()}
	if out, err := doctor.CombinedOutput(); !strings.Contains(string(out), "first process rondo-sandbox-init\n") {
		t.Errorf("rondo doctor: %v\n%s", err, out)
	}

	nothing := programs(t.TempDir())
	refused(t, py, "rondo-sandbox-init", nothing, "RONDO_WHEEL_PLATFORM="+platform)
	refused(t, py, "RONDO_WHEEL_PLATFORM", nothing, "RONDO_WHEEL_PLATFORM=")
}

// refused fails the test unless no wheel is built, and the error has a word.
func refused(t *testing.T, py, word string, env ...string) {
	t.Helper()
	c := exec.Command(py, "-m", "hatchling", "build", "--target", "wheel", "--directory", t.TempDir())
	c.Dir = client
	c.Env = append(c.Environ(), env...)
	if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), word) {
		t.Errorf("built: %v\n%s", err, out)
	}
}

// build builds the packages of sources as `clients/python/wheels` does, with some variables. It
// gives the one that the pattern finds.
func build(t *testing.T, py, sources, pattern string, env ...string) string {
	t.Helper()
	dir := t.TempDir()
	runWith(t, env, sources, py, "-m", "hatchling", "build", "--target", "sdist", "--target",
		"wheel", "--directory", dir)
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %q, %v", pattern, found, err)
	}
	return found[0]
}

func contents(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// importing runs Python code in an environment. What the package requires comes from the
// interpreter that runs the tests, which may have this package, too.
func importing(t *testing.T, py, inside, code string) string {
	t.Helper()
	packages := run(t, t.TempDir(), py, "-c", "import sys; print(sys.path)")
	return wheel.Run(t, t.TempDir(), inside, "-c", fmt.Sprintf(
		"import sys; sys.path += [p for p in %s if 'packages' in p]\n", packages)+code)
}
