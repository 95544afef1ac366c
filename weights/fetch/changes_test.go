package fetch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestChanges: the changes between versions of the folder are made once, and go with the
// version that they lead to.
func TestChanges(t *testing.T) {
	s, at := newStore(t), t.TempDir()
	steps(t, s, 3)
	f := open(t, at)
	for version := int64(1); version <= 3; version++ {
		fetched(t, f, s, version)
	}
	first, err := f.Changes(t.Context(), 1, 2)
	if err != nil || len(first.Files) != 1 {
		t.Fatalf("%+v, %v", first, err)
	}
	base, err := f.Have(1)
	if err != nil || first.Base != base.Digest {
		t.Errorf("they begin at %s, and version 1 is %s (%v)", first.Base, base.Digest, err)
	}
	if again, err := f.Changes(t.Context(), 1, 2); again != first {
		t.Errorf("they were made again: %v", err)
	}
	if _, err := f.Changes(t.Context(), 2, 3); err != nil {
		t.Error(err)
	}
	if back, err := f.Changes(t.Context(), 3, 2); err != nil || len(back.Files) != 1 {
		t.Errorf("back to an older version: %v", err)
	}
	if _, err := f.Changes(t.Context(), 0, 3); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("from a version that is not there: %v", err)
	}
	if err := f.Remove(1); err != nil { // leaves version 3
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(at, ".v*"))
	if want := filepath.Join(at, ".v000003.from000002"); err != nil || len(left) != 1 || left[0] != want {
		t.Errorf("%q are left, want %q (%v)", left, want, err)
	}
}

// TestChangesOfAnotherProcess: what one that was killed has left does not stay.
func TestChangesOfAnotherProcess(t *testing.T) {
	s, at := newStore(t), t.TempDir()
	steps(t, s, 2)
	f := open(t, at)
	fetched(t, f, s, 1)
	fetched(t, f, s, 2)
	for _, dir := range []string{".v000002.from000001", ".v000002.from000001.new", ".v000001.from000000.new"} {
		if err := os.Mkdir(filepath.Join(at, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, dir, "torn"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := f.Changes(t.Context(), 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	for path := range c.Files {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if err := f.Remove(1); err != nil {
		t.Fatal(err)
	}
	if torn, err := filepath.Glob(filepath.Join(at, ".v*", "torn")); err != nil || len(torn) > 0 {
		t.Errorf("%q, %v", torn, err)
	}
}
