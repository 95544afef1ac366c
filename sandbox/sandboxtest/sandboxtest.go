// Package sandboxtest helps tests that need sandboxes.
package sandboxtest

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/sandbox"
)

var probe = sync.OnceValue(func() error {
	_, err := sandbox.Probe(context.Background())
	return err
})

// Require skips the test where this system refuses sandboxes, or fails it where RONDO_REQUIRE_ALL=1 says that everything must run.
func Require(t testing.TB) {
	t.Helper()
	err := probe()
	switch {
	case err == nil:
	case os.Getenv("RONDO_REQUIRE_ALL") == "1":
		t.Fatalf("sandboxes are required by RONDO_REQUIRE_ALL=1: %v", err)
	default:
		t.Skipf("this system refuses sandboxes: %v", err)
	}
}

// New makes a sandbox that is closed when the test ends.
func New(t testing.TB, spec sandbox.Spec) *sandbox.Sandbox {
	t.Helper()
	Require(t)
	if spec.Name == "" {
		spec.Name = "test"
	}
	sb, err := sandbox.New(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sb.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return sb
}

// Pack packs files given by path; contents that start with "#!" are executable.
func Pack(t testing.TB, files map[string]string) []byte {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for name, content := range files {
		if err := root.MkdirAll(parent(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := root.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := sandbox.Pack(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func parent(name string) string {
	for i := len(name) - 1; i > 0; i-- {
		if name[i] == '/' {
			return name[:i]
		}
	}
	return "."
}
