package projection_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/storage/projection"
	"github.com/rondo-rl/rondo/tests/smalldisk"
)

// TestFullDisk: wherever in Pebble's work the disk is full, no process ends and nothing is lost:
// writes wait until there is room.
func TestFullDisk(t *testing.T) {
	const rounds, batches = 6, 30
	dir := smalldisk.Mount(t, "256m")
	path := filepath.Join(dir, "p")
	db, err := projection.Open(path, projection.Identity{})
	if err != nil {
		t.Fatal(err)
	}
	seq := uint64(0)
	write := func() error {
		seq++
		tx := db.Begin()
		for i := range 64 {
			noise := make([]byte, 3000)
			_, _ = rand.Read(noise)
			if err := projection.Put(tx, fmt.Sprint("k", seq, "/", i), noise); err != nil {
				return err
			}
		}
		return db.Commit(tx, seq)
	}
	for round := range rounds {
		free := fillBut(t, dir, int64(round)*700<<10)
		done := make(chan error, 1)
		go func() {
			var err error
			for range batches {
				err = errors.Join(err, write())
			}
			done <- err
		}()
		time.Sleep(200 * time.Millisecond) // in which the room that is left is used up
		free()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if db, err = projection.Open(path, projection.Identity{}); err != nil || db.Seq() != rounds*batches {
		t.Fatalf("opened again: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// TestCloseOnFullDisk: whoever shuts down on a full disk is not held up until there is room.
func TestCloseOnFullDisk(t *testing.T) {
	dir := smalldisk.Mount(t, "64m")
	path := filepath.Join(dir, "p")
	db, err := projection.Open(path, projection.Identity{})
	if err != nil {
		t.Fatal(err)
	}
	free := fillBut(t, dir, 0)
	tx, noise := db.Begin(), make([]byte, 64<<10) // a part of a memtable, so that its log alone has to be written
	_, _ = rand.Read(noise)
	if err := projection.Put(tx, "k", noise); err != nil {
		t.Fatal(err)
	}
	if err := db.Commit(tx, 1); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err == nil {
		t.Error("it was closed, and what it holds is nowhere")
	}
	free()
	for db, err = nil, errors.New("held"); err != nil; db, err = projection.Open(path, projection.Identity{}) {
		time.Sleep(10 * time.Millisecond) // until what waits has ended
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// fillBut takes all the room of a disk but some bytes, until it is freed.
func fillBut(t *testing.T, dir string, left int64) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "filler")
	// a compaction takes room, too
	if err := os.WriteFile(name, make([]byte, max(0, available(t, dir)-left)), 0o600); err != nil &&
		!errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Error(err)
		}
	}
}

func available(t *testing.T, dir string) int64 {
	t.Helper()
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		t.Fatal(err)
	}
	return int64(disk.Bavail) * disk.Bsize
}
