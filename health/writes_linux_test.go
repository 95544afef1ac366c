package health_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/health"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/tests/smalldisk"
)

// readable is a store that gives what it has, and takes nothing while it is full.
type readable struct {
	storage.Store
	full atomic.Bool
}

func (s *readable) Put(ctx context.Context, key string, data []byte) error {
	if s.full.Load() {
		return storage.Unavailable(ctx, errors.New("507 the storage is full"))
	}
	return s.Store.Put(ctx, key, data)
}

// TestStoreThatTakesNothing: a store that answers reads and refuses writes is an outage.
func TestStoreThatTakesNothing(t *testing.T) {
	t.Parallel()
	store := &readable{Store: natstest.Store(t)}
	w := watch(t, health.Options{}, natstest.Connect(t, natstest.Server(t)), store)
	if ready := w.ready(); len(ready) != 0 {
		t.Fatalf("ready with %+v", ready)
	}
	store.full.Store(true)
	w.eventually(health.StoreUnreachable, true)
	if ready := w.ready(); len(ready) != 1 || !strings.Contains(ready[0].Reason, "507") {
		t.Errorf("ready with %+v", ready)
	}
	store.full.Store(false)
	w.eventually(health.StoreUnreachable, false)
	w.once(health.StoreUnreachable, 1)
}

// TestDiskWithoutInodes: a disk that has bytes left, and room for no file, is full.
func TestDiskWithoutInodes(t *testing.T) {
	t.Parallel()
	dir := smalldisk.Mount(t, "200m,nr_inodes=200")
	w := watch(t, health.Options{Disks: []string{dir}}, natstest.Connect(t, natstest.Server(t)), natstest.Store(t))
	var names []string
	for n, err := 0, error(nil); err == nil; n++ {
		name := filepath.Join(dir, fmt.Sprint(n))
		if err = os.WriteFile(name, nil, 0o600); err == nil {
			names = append(names, name)
		}
	}
	w.eventually(health.DiskFull, true)
	for _, name := range names {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	w.eventually(health.DiskFull, false)
	w.once(health.DiskFull, 1)
}

// TestDiskThatTakesNothing: a disk that has become read-only is an outage of its own, and leaves
// nothing behind when it is written to.
func TestDiskThatTakesNothing(t *testing.T) {
	t.Parallel()
	dir := smalldisk.Mount(t, "50m")
	w := watch(t, health.Options{Disks: []string{dir}}, natstest.Connect(t, natstest.Server(t)), natstest.Store(t))
	remount := func(flags uintptr) {
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	if ready := w.ready(); len(ready) != 0 {
		t.Fatalf("ready with %+v", ready)
	}
	remount(unix.MS_RDONLY)
	w.eventually(health.DiskFails, true)
	remount(0)
	w.eventually(health.DiskFails, false)
	w.once(health.DiskFails, 1)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%d files are left, %v", len(left), err)
	}
}

// TestDiskWithoutNamelessFiles: where a file system has no files without a name, one with a name is
// written, and nothing is left of it.
func TestDiskWithoutNamelessFiles(t *testing.T) {
	t.Parallel()
	if took, err := health.TimeWrite(t.Context(), "/proc"); err == nil {
		t.Errorf("a write to a folder that takes none took %s", took)
	}
	dir := smalldisk.Mount(t, "1m")
	if err := health.TryNamed(dir); err != nil {
		t.Error(err)
	}
	free := smalldisk.Fill(t, dir)
	if err := health.TryNamed(dir); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a full disk: %v", err)
	}
	free()
	if left, err := filepath.Glob(filepath.Join(dir, ".rondo*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestParkedInputs: inputs that wait are told of by their service, with what they wait
// for, and stop no process.
func TestParkedInputs(t *testing.T) {
	t.Parallel()
	w := watch(t, health.Options{}, natstest.Connect(t, natstest.Server(t)), natstest.Store(t))
	first := w.monitor.Parked("scorer", errors.New("503 Slow Down"))
	second := w.monitor.Parked("scorer", errors.New("another"))
	w.eventually(health.InputsParked, true)
	outages := w.outages()
	if len(outages) != 1 || outages[0].Of != "scorer" || !strings.Contains(outages[0].Reason, "2 inputs wait") ||
		!strings.Contains(outages[0].Reason, "503 Slow Down") || outages[0].Stops() {
		t.Errorf("outages %+v", outages)
	}
	first()
	second()
	w.eventually(health.InputsParked, false)
	w.once(health.InputsParked, 1)
}
