package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// procFolder is where the kernel shows processes. No file tool looks into it: what /proc says of
// "self" is this process, and its links lead to whatever this process has open.
const procFolder = "/proc"

// openPlain opens a path that leads through no link of the kernel's, such as those in
// /proc/self/fd, and not to a file of /proc.
func openPlain(path string, flags int, mode fs.FileMode) (*os.File, error) {
	fd, err := openUnlinked(path, flags|unix.O_CLOEXEC, mode)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	var system unix.Statfs_t
	if err := unix.Fstatfs(fd, &system); err != nil || int64(system.Type) == unix.PROC_SUPER_MAGIC {
		unix.Close(fd)
		return nil, &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("%w: not a regular file", wire.ErrInvalid)}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// hasOpenat2 reports whether the kernel (Linux 5.6), and a container around
// this process, have the call.
var hasOpenat2 = sync.OnceValue(func() bool {
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC})
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
})

func openUnlinked(path string, flags int, mode fs.FileMode) (fd int, err error) {
	how := unix.OpenHow{Flags: uint64(flags), Resolve: unix.RESOLVE_NO_MAGICLINKS}
	if flags&unix.O_CREAT != 0 {
		how.Mode = uint64(mode.Perm())
	}
	for {
		if hasOpenat2() {
			fd, err = unix.Openat2(unix.AT_FDCWD, path, &how)
		} else {
			fd, err = unix.Open(asText(path), flags|unix.O_NOFOLLOW, uint32(how.Mode))
		}
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// asText follows a path's links by their text, which for a link of the kernel's is no
// path that leads anywhere.
func asText(path string) string {
	if found, err := filepath.EvalSymlinks(path); err == nil {
		return found
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path))
	}
	return path
}

// makeFolder makes a folder and its parents, below one that openPlain opens.
func makeFolder(path string) error {
	for above := path; ; above = filepath.Dir(above) {
		folder, err := openPlain(above, unix.O_PATH, 0)
		if err == nil {
			folder.Close()
			return os.MkdirAll(path, 0o755)
		}
		if !errors.Is(err, fs.ErrNotExist) || above == filepath.Dir(above) {
			return err
		}
	}
}
