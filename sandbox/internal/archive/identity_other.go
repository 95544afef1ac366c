//go:build !linux

package archive

import (
	"io/fs"
	"time"
)

const openFlags = 0

// identity is unknown where sandboxes do not run; every file is then compared by its content.
type identity struct{ known bool }

func identify(fs.FileInfo) identity { return identity{} }

func (identity) changed() time.Time { return time.Time{} }

func device(fs.FileInfo) uint64 { return 0 }
