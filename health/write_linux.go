package health

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tryWrite writes a file without a name in a directory, which is gone when it is closed. A quota,
// or a disk that has become read-only, shows by nothing else.
func tryWrite(dir string) error {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENOSYS) {
		return tryNamed(dir) // this file system has none, as NFS
	}
	if err != nil {
		return &os.PathError{Op: "write a file in", Path: dir, Err: err}
	}
	return syncTrial(os.NewFile(uintptr(fd), dir))
}
