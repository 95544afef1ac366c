//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package dir

import (
	"errors"
	"os"
)

// Without file locks conditional writes would not be safe, so Open answers
// errors.ErrUnsupported on such a system.

func lockExclusive(*os.File) error   { return errors.ErrUnsupported }
func lockShared(*os.File) error      { return errors.ErrUnsupported }
func unlockFile(*os.File) error      { return errors.ErrUnsupported }
func tryLock(*os.File) (bool, error) { return false, errors.ErrUnsupported }
