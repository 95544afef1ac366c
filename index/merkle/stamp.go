package merkle

import (
	"io/fs"
	"time"
)

// stamp is what a file system says of a file without reading it. As long as it is the
// same, so is the content.
type stamp struct {
	size              int64
	modified, changed int64 // ns since 1970
	inode, device     uint64
	mode              uint32
	regular, folder   bool
	link              bool
}

// kind is the type of the entry, in the form of io/fs.
func (s stamp) kind() fs.FileMode {
	switch {
	case s.regular:
		return 0
	case s.folder:
		return fs.ModeDir
	case s.link:
		return fs.ModeSymlink
	}
	return fs.ModeIrregular
}

// Clocks of file systems go in steps: by the kernel's tick, or by seconds where
// times have no finer part.
const (
	tick       = 20 * time.Millisecond
	coarseTick = 2 * time.Second
)

// racy reports whether the file may change, after it was read, without the stamp telling: it was
// last changed so shortly before the walk began that a later change could fall into the same step
// of the clock. Git has the same rule.
func (s stamp) racy(began time.Time) bool {
	last := max(s.modified, s.changed)
	step := tick
	if last%int64(time.Millisecond) == 0 {
		step = coarseTick
	}
	return last >= began.Add(-step).UnixNano()
}
