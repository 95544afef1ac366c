//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package dir

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func lockExclusive(file *os.File) error { return flock(file, unix.LOCK_EX) }
func lockShared(file *os.File) error    { return flock(file, unix.LOCK_SH) }
func unlockFile(file *os.File) error    { return flock(file, unix.LOCK_UN) }

// tryLock takes the lock for itself alone if nobody else holds it.
func tryLock(file *os.File) (bool, error) {
	err := flock(file, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

func flock(file *os.File, how int) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var locked error
	err = conn.Control(func(fd uintptr) {
		for locked = unix.EINTR; locked == unix.EINTR; {
			locked = unix.Flock(int(fd), how)
		}
	})
	return errors.Join(err, locked)
}
