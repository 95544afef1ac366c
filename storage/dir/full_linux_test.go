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

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
