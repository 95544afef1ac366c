package natstest

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	// memory is where Linux has files in memory.
	memory = "/dev/shm"
	// leastMemory has room for the folders of several packages' tests;
	// containers often have 64 MiB.
	leastMemory = 4 << 30
)

// Folder is an empty folder that ends with the test. Where there is room it is in memory: a
// server makes hundreds of small files, and a disk would take most of the time of tests
// that are not about disks.
func Folder(t testing.TB) string {
	t.Helper()
	home, err := ownMemory()
	if err != nil {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(home.Name(), "")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove a test's folder: %v", err)
		}
	})
	return dir
}

// ownMemory is the home of this process's folders, which is locked while the process lives. Those
// of others that have ended, however they did, are removed.
var ownMemory = sync.OnceValues(makeHome)

func makeHome() (*os.File, error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(memory, &disk); err != nil {
		return nil, err
	}
	if disk.Type != unix.TMPFS_MAGIC || disk.Bavail*uint64(disk.Bsize) < leastMemory {
		return nil, errors.New("files in memory have no room")
	}
	homes, err := filepath.Glob(filepath.Join(memory, "rondo-test-*"))
	if err != nil {
		return nil, err
	}
	for _, home := range homes {
		if f, err := lock(home); err == nil {
			_ = os.RemoveAll(home)
			f.Close()
		}
	}
	home, err := os.MkdirTemp(memory, "rondo-test-")
	if err != nil {
		return nil, err
	}
	return lock(home)
}

func lock(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
