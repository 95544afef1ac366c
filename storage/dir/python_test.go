package dir_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/storage"
)

// client runs a program with the Python client. Without the client's packages the test is skipped,
// or fails with RONDO_REQUIRE_ALL=1.
func client(t *testing.T, program string, args ...string) string {
	t.Helper()
	python := os.Getenv("RONDO_PYTHON")
	if python == "" {
		python = "python3"
	}
	run := func(args ...string) ([]byte, error) {
		cmd := exec.Command(python, args...)
		cmd.Env = append(os.Environ(), "PYTHONPATH=../../clients/python", "PYTHONDONTWRITEBYTECODE=1")
		return cmd.CombinedOutput()
	}
	if output, err := run("-c", "import rondo"); err != nil {
		if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
			t.Fatalf("%s cannot import the client: %v\n%s", python, err, output)
		}
		t.Skipf("%s cannot import the client (set RONDO_PYTHON): %v", python, err)
	}
	output, err := run(append([]string{"-c", program}, args...)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return string(output)
}

// TestPythonSharesPacks: what services pack the Python client reads, and the other way round; what
// they delete is deleted for it.
func TestPythonSharesPacks(t *testing.T) {
	path := t.TempDir()
	s := open(t, path)
	pack(t, s, 0, 100)
	if err := s.Delete(t.Context(), key(42)); err != nil {
		t.Fatal(err)
	}
	said := client(t, `
import sys
from rondo.directory import Directory
store = Directory(sys.argv[1])
for i in range(100):
    key, want = f"runs/r/o-{i:04}", f"{i} ".encode() * (1 + i)
    assert (store.stat(key) is None) == (i == 42), key
    if i != 42:
        assert store.get(key, 1 << 20) == want, key
for i in range(100, 200):
    store.put_packed({f"runs/r/o-{i:04}": f"{i} ".encode() * (1 + i)})
store.put_packed({f"runs/r/o-{42:04}": b"42 " * 43})
print("read")
`, path)
	if !strings.HasSuffix(said, "read\n") {
		t.Fatal(said)
	}
	wantPacked(t, s, 0, 200)
	wantPacked(t, open(t, path), 0, 200)
	for i := range 200 {
		if err := s.Delete(t.Context(), key(i)); err != nil {
			t.Fatal(err)
		}
	}
	if data, err := s.Get(t.Context(), key(100)); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("deleted: %d bytes, %v", len(data), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if said := client(t, `
import sys
from rondo.directory import Directory
print(sum(Directory(sys.argv[1]).stat(f"runs/r/o-{i:04}") is not None for i in range(200)), "are there")
`, path); !strings.HasSuffix(said, "0 are there\n") {
		t.Error(said)
	}
}
