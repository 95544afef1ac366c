package sandbox_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

// Two sandboxes try to talk by what they see of the host: the sender takes locks, changes times and
// opens files, and the receiver looks.

const (
	inodesWatched = "watched" // the receiver has its watches
	inodesHeld    = "held"    // the sender has its locks
	inodesLook    = "look"    // the receiver may look
)

func init() {
	actors["inodes-send"] = sendByInodes
	actors["inodes-receive"] = receiveByInodes
}

// seenOfHost lists files and folders that two sandboxes of one host both see, but those
// that are known to be shared.
func seenOfHost() (paths []string) {
	known := strings.Split(os.Getenv("SHARED"), "\n")
	for _, dir := range []string{"/usr", "/usr/bin", "/etc/alternatives", "/lib64", "/usr/lib", "/dev",
		"/etc/ssl/certs", "/opt/folder"} {
		entries, _ := os.ReadDir(dir)
		paths = append(paths, dir)
		for _, entry := range entries[:min(len(entries), 100)] {
			path := filepath.Join(dir, entry.Name())
			if info, err := os.Lstat(path); err != nil || info.Mode()&fs.ModeSymlink != 0 ||
				slices.Contains(known, path) || path == "/dev/pts" || path == "/dev/shm" {
				continue
			}
			paths = append(paths, path)
		}
	}
	return append(paths, "/opt/program")
}

func mark(name string) {
	if err := os.WriteFile("/app/"+name, nil, 0o644); err != nil {
		escaped("%v", err)
	}
}

func waitFor(name string) {
	for {
		if _, err := os.Stat("/app/" + name); err == nil {
			return
		}
	}
}

func sendByInodes() {
	for _, path := range seenOfHost() {
		_ = unix.UtimesNanoAt(unix.AT_FDCWD, path, nil, 0)
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		_ = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) // another name of the file may have it
		if fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
			_ = unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
		}
	}
	mark(inodesHeld)
	waitFor(inodesLook)
}

func receiveByInodes() {
	paths := seenOfHost()
	times := map[string]unix.Timespec{}
	watches, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		escaped("no watches: %v", err)
	}
	for _, path := range paths {
		if _, err := unix.InotifyAddWatch(watches, path, unix.IN_ALL_EVENTS); err != nil {
			continue
		}
		var found unix.Stat_t
		_ = unix.Stat(path, &found)
		times[path] = found.Mtim
	}
	if len(times) < 50 {
		escaped("only %d paths are looked at", len(times))
	}
	mark(inodesWatched)
	waitFor(inodesLook)
	var buffer [4096]byte
	if n, err := unix.Read(watches, buffer[:]); err == nil {
		event := (*unix.InotifyEvent)(unsafe.Pointer(&buffer[0]))
		escaped("%d bytes of events, the first one %#x of watch %d", n, event.Mask, event.Wd)
	}
	for path, before := range times {
		var found unix.Stat_t
		if _ = unix.Stat(path, &found); found.Mtim != before {
			escaped("the time of %s has changed", path)
		}
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		if err := unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB); err != nil {
			escaped("%s is locked: %v", path, err)
		}
		lock := unix.Flock_t{Type: unix.F_WRLCK}
		if err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &lock); err == nil && lock.Type != unix.F_UNLCK {
			escaped("%s has a lock on its bytes", path)
		}
		unix.Close(fd)
	}
	for name, number := range map[string]uintptr{"mincore": unix.SYS_MINCORE, "cachestat": unix.SYS_CACHESTAT} {
		if _, _, errno := unix.RawSyscall(number, 0, 0, 0); errno != unix.ENOSYS {
			escaped("%s answers %v", name, errno)
		}
	}
}

// TestSandboxesShareNoInodes: what a sandbox does to files of the host that another one sees, too,
// that one does not learn.
func TestSandboxesShareNoInodes(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "file"), []byte("of the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	open := func() *sandbox.Sandbox {
		return sandboxtest.New(t, sandbox.Spec{Mounts: []sandbox.Mount{{Source: program, Target: "/opt/program"},
			{Source: folder, Target: "/opt/folder"}}})
	}
	sender, receiver := open(), open()
	for _, path := range sender.SharedInodes() {
		if os.Geteuid() == 0 || !strings.HasPrefix(path, "/dev/") {
			t.Errorf("%s shows the host's inode", path)
		}
	}
	said := make(chan string, 2)
	act := func(sb *sandbox.Sandbox, actor string) {
		result, err := sb.Exec(t.Context(), sandbox.Command{Argv: []string{"/opt/program"}, Env: map[string]string{
			"RONDO_TEST_ACTOR": actor, "SHARED": strings.Join(sb.SharedInodes(), "\n"),
		}})
		said <- fmt.Sprintf("%s%s%v", result.Stdout, result.Stderr, err)
	}
	wait := func(sb *sandbox.Sandbox, name string) {
		for {
			if _, err := sb.Stat(t.Context(), name); err == nil {
				return
			} else if len(said) > 0 || t.Context().Err() != nil {
				t.Fatalf("no %s: %v", name, err)
			}
		}
	}
	go act(receiver, "inodes-receive")
	wait(receiver, inodesWatched)
	go act(sender, "inodes-send")
	wait(sender, inodesHeld)
	for _, sb := range []*sandbox.Sandbox{receiver, sender} {
		if err := sb.WriteFile(t.Context(), inodesLook, nil, 0); err != nil {
			t.Fatal(err)
		}
		if got := <-said; got != "<nil>" {
			t.Error(got)
		}
	}
}
