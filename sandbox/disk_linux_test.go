package sandbox_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

// diskFolder is a folder for disks of sandboxes.
func diskFolder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	sandboxtest.RequireDisk(t, dir)
	return dir
}

// onDisk runs a command, whose output it answers.
func onDisk(t *testing.T, sb *sandbox.Sandbox, line string) string {
	t.Helper()
	result, err := sb.Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", line}})
	if err != nil || result.ExitCode != 0 {
		t.Fatalf("%s: exit %d, %v\n%s%s", line, result.ExitCode, err, result.Stdout, result.Stderr)
	}
	return string(result.Stdout)
}

// TestDiskIsNotMemory: a sandbox writes more than its memory, with a workspace over a shared
// snapshot and without, and what it has changed comes out.
func TestDiskIsNotMemory(t *testing.T) {
	folder := diskFolder(t)
	data := sandboxtest.Pack(t, map[string]string{"a/kept": "kept", "a/changed": "before"})
	for name, snapshot := range map[string]*sandbox.Snapshot{"alone": nil,
		"over a snapshot": use(t, openSnapshots(t, 1<<30), data)} {
		t.Run(name, func(t *testing.T) {
			sb := sandboxtest.New(t, sandbox.Spec{
				Disk: folder, Snapshot: snapshot, Limits: sandbox.Limits{MemoryBytes: 64 << 20, DiskBytes: 256 << 20},
			})
			if snapshot == nil {
				if err := sb.Unpack(t.Context(), sb.Workdir(), data); err != nil {
					t.Fatal(err)
				}
				if err := sb.SetBase(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			onDisk(t, sb,
				"dd if=/dev/urandom of=large bs=1M count=96 status=none && mv a b && printf after >b/changed && cp large /tmp/copy && sync && cmp large /tmp/copy")
			if sb.Cgroup() != "none" && sb.MemoryBytes() > 80<<20 {
				t.Errorf("96 MiB twice on disk take %d MiB of memory, of 64", sb.MemoryBytes()>>20)
			}
			var change bytes.Buffer
			if _, err := sb.ChangesTo(t.Context(), &change); err != nil {
				t.Fatal(err)
			}
			again := sandboxtest.New(t, sandbox.Spec{Disk: folder, Snapshot: snapshot,
				Limits: sandbox.Limits{MemoryBytes: 64 << 20, DiskBytes: 256 << 20}})
			if snapshot == nil {
				if err := errors.Join(again.Unpack(t.Context(), again.Workdir(), data),
					again.SetBase(t.Context())); err != nil {
					t.Fatal(err)
				}
			}
			if err := again.ApplyFrom(t.Context(), sandbox.Bytes(change.Bytes())); err != nil {
				t.Fatal(err)
			}
			const sum = "sha256sum large b/kept b/changed && ! test -e a"
			if want, got := onDisk(t, sb, sum), onDisk(t, again, sum); want != got {
				t.Errorf("restored:\n%s\nwas:\n%s", got, want)
			}
		})
	}
}

// TestDiskIsBounded: bytes and files inside end at the disk's size, and what is outside never runs
// out first, as it is reserved.
func TestDiskIsBounded(t *testing.T) {
	folder := diskFolder(t)
	sb := sandboxtest.New(t, sandbox.Spec{Disk: folder, Limits: sandbox.Limits{DiskBytes: 32 << 20}})
	result, err := sb.Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-c",
		"dd if=/dev/zero of=full bs=1M count=100"}})
	if err != nil || result.ExitCode == 0 {
		t.Fatalf("100 MiB on a disk of 32: exit %d, %v", result.ExitCode, err)
	}
	onDisk(t, sb, "rm full")
	result, err = sb.Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-c",
		`i=0; while test $i -lt 5000; do : >f$i || exit 9; i=$((i+1)); done`}})
	if err != nil || result.ExitCode == 0 {
		t.Fatalf("5,000 files on a disk of 2,048: exit %d, %v", result.ExitCode, err)
	}
	if err := sb.WriteFile(t.Context(), sb.Workdir()+"/one-more", nil, 0o644); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a file more: %v, want ENOSPC", err)
	}
}

// TestNoRoomForADisk: a disk that does not fit is not begun, and fits when the one that
// was in its way is closed.
func TestNoRoomForADisk(t *testing.T) {
	folder := sandboxtest.SmallDisk(t, 256)
	spec := sandbox.Spec{Disk: folder, Limits: sandbox.Limits{DiskBytes: 128 << 20}}
	first, err := sandbox.New(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := sandbox.New(t.Context(), spec); !errors.Is(err, sandbox.ErrNoRoom) {
		if err == nil {
			second.Close()
		}
		t.Errorf("twice 128 MiB of 256: %v, want ErrNoRoom", err)
	}
	onDisk(t, first, "dd if=/dev/zero of=large bs=1M count=100 status=none")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	sandboxtest.New(t, spec)

	if err := sandbox.CheckDisk(folder, 1<<30); err == nil {
		t.Error("a disk larger than the file system can be had")
	}
	for what, folder := range map[string]string{"memory": "/dev/shm",
		"nothing": filepath.Join(folder, "there-is-none")} {
		if err := sandbox.CheckDisk(folder, 1<<20); err == nil || !strings.Contains(err.Error(), folder) {
			t.Errorf("a folder in %s: %v", what, err)
		}
	}
}

// TestDiskGoesWithItsSandbox: file and device go when the sandbox is closed. That they go with its
// owner, however it ends, follows: the file has no name and the device clears itself.
func TestDiskGoesWithItsSandbox(t *testing.T) {
	folder := diskFolder(t)
	sb := sandboxtest.New(t, sandbox.Spec{Disk: folder, Limits: sandbox.Limits{DiskBytes: 64 << 20}})
	onDisk(t, sb, "dd if=/dev/zero of=large bs=1M count=32 status=none")
	if n := devicesIn(t, folder); n != 1 {
		t.Errorf("%d loop devices have files in the folder, want 1", n)
	}
	if err := sb.Close(); err != nil {
		t.Fatal(err)
	}
	if devicesIn(t, folder) > 0 {
		t.Error("the loop device is still there")
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) > 0 {
		t.Errorf("left in the folder: %v, %v", entries, err)
	}
}

// devicesIn counts the loop devices over files of a folder.
func devicesIn(t *testing.T, folder string) (n int) {
	t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if path, err := os.ReadFile(name); err == nil && strings.HasPrefix(string(path), folder+"/") {
			n++
		}
	}
	return n
}

// TestLargeWorkspace: a workspace over a snapshot of RONDO_LARGE_WORKSPACE MiB with as much changed
// is read, and laid over the snapshot elsewhere.
func TestLargeWorkspace(t *testing.T) {
	var size int64
	if _, err := fmt.Sscan(os.Getenv("RONDO_LARGE_WORKSPACE"), &size); err != nil {
		t.Skip("takes minutes and the disk: set RONDO_LARGE_WORKSPACE to a number of MiB")
	}
	folder := diskFolder(t)
	limits := sandbox.Limits{MemoryBytes: 256 << 20, DiskBytes: size << 21, Wall: 10 * time.Minute}
	sb := sandboxtest.New(t, sandbox.Spec{Disk: folder, Limits: limits})
	if err := sb.SetBase(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	step := func(what string) {
		t.Logf("%-28s %6.1f s, %d MiB of memory", what, time.Since(began).Seconds(), sb.MemoryBytes()>>20)
		began = time.Now()
	}
	onDisk(t, sb, fmt.Sprintf("for i in $(seq %d); do dd if=/dev/urandom of=f$i bs=1M count=64 status=none; done",
		size/64))
	step("written")
	for _, what := range []string{"change", "change again"} {
		if found, err := sb.ChangesTo(t.Context(), io.Discard); err != nil {
			t.Fatal(err)
		} else {
			step(fmt.Sprintf("%s: %v", what, found))
		}
	}
}
