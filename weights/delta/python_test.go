package delta_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rondo-rl/rondo/weights/delta"
)

// python runs the client's encoder and decoder on every pair of folders N/old
// and N/new and delta N/go.
const python = `
import pathlib, sys
import rondo.delta
for case in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    with open(case / "python", "wb") as out:
        rondo.delta.encode(case / "old", case / "new", out)
    rondo.delta.apply(case / "old", case / "go", case / "applied")
    rondo.delta.apply(case / "old", case / "python", case / "again")
`

// TestPythonClient: the Python client applies what this package makes, and this package what the
// client makes, of every type and mode, byte for byte.
func TestPythonClient(t *testing.T) {
	interpreter := os.Getenv("RONDO_PYTHON")
	if interpreter == "" {
		interpreter = "python3"
	}
	clients, err := filepath.Abs("../../clients/python")
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) ([]byte, error) {
		cmd := exec.Command(interpreter, args...)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+clients, "PYTHONDONTWRITEBYTECODE=1")
		return cmd.CombinedOutput()
	}
	if output, err := run("-c", "import rondo, xxhash"); err != nil {
		if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
			t.Fatalf("%s lacks the modules of clients/python/requirements.txt: %v\n%s", interpreter, err, output)
		}
		t.Skipf("%s lacks the modules of clients/python/requirements.txt (or set RONDO_PYTHON): %v", interpreter, err)
	}
	dir := t.TempDir()
	type pair struct{ old, new map[string][]byte }
	var pairs []pair
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 9))
		base := random(r, 8*r.IntN(600))
		pairs = append(pairs, pair{base.files(t), base.step(r, 0, 0.001, 0.02, 0.2, 0.6, 2).files(t)})
	}
	r := rand.New(rand.NewPCG(8, 8))
	for _, share := range []float64{1e-5, 0.004, 0.05} { // several chunks
		big := tensor(r, "w", "BF16", delta.ChunkSize/2+delta.ChunkSize/4)
		pairs = append(pairs, pair{model{"m.safetensors": {big}}.files(t),
			model{"m.safetensors": {changed(r, big, share)}}.files(t)})
	}
	for i, p := range pairs {
		for name, files := range map[string]map[string][]byte{"old": p.old, "new": p.new,
			".": {"go": encode(t, p.old, p.new)}} {
			folder := filepath.Join(dir, fmt.Sprint(i), name)
			if err := os.MkdirAll(folder, 0o755); err != nil {
				t.Fatal(err)
			}
			for file, data := range files {
				if err := os.WriteFile(filepath.Join(folder, file), data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if output, err := run("-c", python, dir); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for i, p := range pairs {
		folder := filepath.Join(dir, fmt.Sprint(i))
		for name, data := range p.new {
			for _, applied := range []string{"applied", "again"} {
				if got, err := os.ReadFile(filepath.Join(folder, applied, name)); err != nil ||
					!bytes.Equal(got, data) {
					t.Fatalf("pair %d: the client makes other bytes of %s: %v", i, name, err)
				}
			}
		}
		made, err := os.ReadFile(filepath.Join(folder, "python"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := apply(t, p.old, made, filepath.Join(folder, "ours"))
		if err != nil {
			t.Fatalf("pair %d: %v", i, err)
		}
		wantFiles(t, got, p.new)
		ours := open(t, encode(t, p.old, p.new))
		for j, theirs := range open(t, made).Tensors {
			if mine := ours.Tensors[j]; mine.New != theirs.New || mine.From == theirs.From && mine.Old != theirs.Old {
				t.Errorf("pair %d: tensor %s has other digests", i, theirs.Name)
			}
		}
	}
}
