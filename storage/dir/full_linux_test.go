package dir_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/tests/smalldisk"
)

// TestFullDisk: what does not fit leaves nothing, and the store goes on.
func TestFullDisk(t *testing.T) {
	path := filepath.Join(smalldisk.Mount(t, "16m"), "objects")
	s := open(t, path)
	if err := s.Put(t.Context(), "before", []byte("here")); err != nil {
		t.Fatal(err)
	}
	vast := io.LimitReader(zeros{}, 64<<20)
	if err := s.PutReader(t.Context(), "vast", vast, -1); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("more than the disk holds: %v", err)
	}
	if _, err := s.Stat(t.Context(), "vast"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("Stat: %v", err)
	}
	if entries, err := os.ReadDir(filepath.Join(path, ".rondo", "tmp")); err != nil || len(entries) != 0 {
		t.Errorf("%d temporary files, %v", len(entries), err)
	}
	if err := s.PutReader(t.Context(), "after", bytes.NewReader(make([]byte, 8<<20)), 8<<20); err != nil {
		t.Error(err)
	}
	if data, err := s.Get(t.Context(), "before"); err != nil || string(data) != "here" {
		t.Errorf("Get = %q, %v", data, err)
	}
}

// TestFullDiskOfPacks: an object that does not fit fails, what was answered stays, and when there
// is room again the store goes on.
func TestFullDiskOfPacks(t *testing.T) {
	s := open(t, filepath.Join(smalldisk.Mount(t, "16m"), "objects"))
	if err := s.Put(t.Context(), "large", make([]byte, 4<<20)); err != nil {
		t.Fatal(err)
	}
	n, data := 0, bytes.Repeat([]byte("x"), 60<<10)
	var err error
	for ; err == nil && n < 1000; n++ {
		err = s.PutPacked(t.Context(), key(n), data)
	}
	if n--; !errors.Is(err, unix.ENOSPC) || n < 100 {
		t.Fatalf("%d objects, then %v", n, err)
	}
	if err := s.Delete(t.Context(), "large"); err != nil {
		t.Fatal(err)
	}
	if err := s.PutPacked(t.Context(), key(n), data); err != nil {
		t.Fatal(err)
	}
	there := 0
	for info, err := range s.List(t.Context(), "runs/") {
		if got, failed := s.Get(t.Context(), info.Key); err != nil || failed != nil || !bytes.Equal(got, data) {
			t.Fatalf("%s: %d bytes, %v, %v", info.Key, len(got), err, failed)
		}
		there++
	}
	if there != n+1 {
		t.Errorf("%d objects, want %d", there, n+1)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
