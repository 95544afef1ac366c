//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package agents

import (
	"context"
	"errors"
	"os"
)

// Without file locks no folder can be shared, so a layer cannot be opened on such a system.

func lock(context.Context, *os.File, bool) error { return errors.ErrUnsupported }
func tryLock(*os.File, bool) (bool, error)       { return false, errors.ErrUnsupported }
