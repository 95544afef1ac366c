package first_test

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/sandbox/internal"
	"github.com/rondo-rl/rondo/tests/program"
)

// TestFirstProcess is the program that lies beside rondo, where it is of the same build, and has in
// it what its fingerprint counts.
func TestFirstProcess(t *testing.T) {
	program.NeedSandbox(t)
	dir := t.TempDir()
	owner := filepath.Join(dir, "rondo-bench")
	rondo, err := os.ReadFile(program.Bench(program.Binary(t)))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(owner, rondo, 0o700); err != nil {
		t.Fatal(err)
	}
	expect := func(want string) {
		t.Helper()
		out, err := exec.Command(owner, "sandbox", "--pairs", "1", "--held", "0", "--json").Output()
		var said struct {
			FirstProcess string `json:"first_process"`
		}
		if err := errors.Join(err, json.Unmarshal(out, &said)); err != nil ||
			!strings.HasPrefix(said.FirstProcess, want) {
			t.Errorf("rondo says %v %q and not %q", err, said.FirstProcess, want)
		}
	}
	expect("rondo itself (its folder has no rondo-sandbox-init")

	alone := build(t, dir)
	expect("rondo-sandbox-init")
	info, err := buildinfo.ReadFile(alone)
	if err != nil {
		t.Fatal(err)
	}
	var libraries []string
	for _, library := range info.Deps {
		libraries = append(libraries, library.Path)
	}
	if !slices.Equal(libraries, internal.Libraries) {
		t.Errorf("it is made of %q, and its fingerprint counts %q", libraries, internal.Libraries)
	}

	source, err := filepath.Abs("../internal/jail/seal_linux.go")
	if err != nil {
		t.Fatal(err)
	}
	build(t, dir, "-overlay", changed(t, source))
	expect("rondo itself (" + alone + ": it is of another build)")
	if err := os.WriteFile(alone, []byte("no program"), 0o700); err != nil {
		t.Fatal(err)
	}
	expect("rondo itself (" + alone + ": ")
}

func build(t *testing.T, dir string, flags ...string) string {
	t.Helper()
	path := filepath.Join(dir, "rondo-sandbox-init")
	cmd := exec.Command("go", append(append([]string{"build", "-o", path}, flags...),
		"github.com/rondo-rl/rondo/cmd/rondo-sandbox-init")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// changed is an overlay for go build in which a source has another line.
func changed(t *testing.T, source string) string {
	t.Helper()
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	other, overlay := filepath.Join(t.TempDir(), "other.go"), filepath.Join(t.TempDir(), "overlay.json")
	mapping, err := json.Marshal(map[string]map[string]string{"Replace": {source: other}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{other: append(text, "\n// Another line.\n"...), overlay: mapping} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return overlay
}
