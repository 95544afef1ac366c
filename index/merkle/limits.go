package merkle

import (
	"errors"
	"fmt"
	"strings"
)

// Limits bound a walk. A tree within them is indexed whole; what is outside is
// skipped and reported, but too many files are an error, as nobody could say which of
// them the index should hold.
type Limits struct {
	FileBytes int64 // a larger file is skipped
	Files     int   // files and folders that are not ignored
	Depth     int   // folders below one another
	NameBytes int   // of one segment of a path
}

// DefaultLimits suit the largest repositories that people work in. Sources are seldom over 1 MiB,
// and generated when they are.
func DefaultLimits() Limits {
	return Limits{FileBytes: 1 << 20, Files: 1_000_000, Depth: 100, NameBytes: 255}
}

// Validate refuses limits under which nothing could be indexed, or under which one
// file could fill the memory.
func (l Limits) Validate() error {
	const most = 256 << 20
	switch {
	case l.FileBytes < 1 || l.FileBytes > most:
		return fmt.Errorf("a file's size may be limited to 1 to %d bytes, not %d", most, l.FileBytes)
	case l.Files < 1 || l.Files > maxEntries:
		return fmt.Errorf("the number of files may be limited to 1 to %d, not %d", maxEntries, l.Files)
	case l.Depth < 1 || l.Depth > maxDepth:
		return fmt.Errorf("the depth may be limited to 1 to %d, not %d", maxDepth, l.Depth)
	case l.NameBytes < 1 || l.NameBytes > maxName:
		return fmt.Errorf("a name may be limited to 1 to %d bytes, not %d", maxName, l.NameBytes)
	}
	return nil
}

// ErrTooManyFiles says that a tree is larger than Limits.Files: the rest of it is unknown.
var ErrTooManyFiles = errors.New("too many files: exclude what is not source in a .rondoignore")

// Unknown is what a walk could not look at: a file, or a folder of which at
// least a part was not seen.
type Unknown struct {
	Path string // from the root, which itself is "."
	Err  error
}

// PartialError says that a walk is not whole. The tree that comes with it is right in
// all but what is unknown.
type PartialError struct {
	Unknown []Unknown // sorted by path, the first of them
	Count   int       // of all
}

// maxUnknown bounds the list of an error; the tree has them all.
const maxUnknown = 100

func (e *PartialError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d paths could not be looked at, and what the index knows of them stays: ", e.Count)
	for i, u := range e.Unknown {
		if i == 3 {
			b.WriteString("; …")
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%q: %v", u.Path, u.Err)
	}
	return b.String()
}

// Unwrap gives the reasons, so that errors.Is finds a cancelled context among them.
func (e *PartialError) Unwrap() []error {
	list := make([]error, len(e.Unknown))
	for i, u := range e.Unknown {
		list[i] = u.Err
	}
	return list
}
