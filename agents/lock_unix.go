//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package agents

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockPause is how long a process waits before it tries again to lock a layer.
const lockPause = 20 * time.Millisecond

// lock waits for a lock on a file, a shared one or one of its own. A lock that was held in the
// other way is lost while it waits.
func lock(ctx context.Context, file *os.File, alone bool) error {
	for {
		taken, err := tryLock(file, alone)
		if taken || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lockPause):
		}
	}
}

func tryLock(file *os.File, alone bool) (bool, error) {
	how := unix.LOCK_SH
	if alone {
		how = unix.LOCK_EX
	}
	err := unix.Flock(int(file.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return err == nil, err
}
