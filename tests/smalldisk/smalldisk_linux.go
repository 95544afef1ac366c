// Package smalldisk gives tests a real file system that is quickly full.
package smalldisk

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/tests/program"
)

// Mount mounts an empty file system of some bytes that ends with the test. It takes root.
func Mount(t testing.TB, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		program.Missing(t, "a small file system takes root: mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// Fill takes all the room that a directory's file system has left, also what others give back
// meanwhile. What it returns gives the room back.
func Fill(t testing.TB, dir string) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "filler")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	fill := func() {
		for _, size := range []int{1 << 20, 4096, 1} {
			piece := make([]byte, size)
			var err error
			for err == nil {
				_, err = f.Write(piece)
			}
			if !errors.Is(err, unix.ENOSPC) {
				t.Error(err)
			}
		}
	}
	fill()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for ticker := time.NewTicker(time.Millisecond); ; fill() {
			select {
			case <-ticker.C:
			case <-stop:
				return
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(stop)
		<-stopped
		if err := errors.Join(f.Close(), os.Remove(name)); err != nil {
			t.Error(err)
		}
	})
}
