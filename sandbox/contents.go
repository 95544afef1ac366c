package sandbox

import (
	"context"
	"io"
	"io/fs"
	"os"
	"testing/fstest"

	"github.com/rondo-rl/rondo/sandbox/internal/archive"
)

// Source opens an archive of Pack or Changes at its beginning, as often as it is
// needed; nil is an empty one.
type Source = archive.Source

// Bytes is an archive in memory.
func Bytes(data []byte) Source { return archive.Bytes(data) }

// Fetch opens the archive of a snapshot.
type Fetch func(context.Context) (io.ReadCloser, error)

// ChangeFound is what a change holds: whether anything differs at all, and whether it makes links.
type ChangeFound struct{ Differs, Links bool }

// PackTo is Pack of a tree whose archive need not fit into memory. After an
// error what it wrote is void.
func PackTo(w io.Writer, fsys fs.FS) error { return archive.PackTo(w, fsys) }

// UnpackTo writes an archive of Pack or ChangesTo below a folder of the host. Hostile archives are
// refused: what it wrote before that stays.
func UnpackTo(root *os.Root, from io.Reader) error { return archive.Unpack(root, from) }

// UnpackPackage writes the files of a compressed tar of a package, such as npm's, below a folder of
// the host, without the one folder around them. Files and folders take at most so many bytes of its
// disk. Links and devices are passed over; names that lead elsewhere are refused.
func UnpackPackage(root *os.Root, from io.Reader, most int64) error {
	return archive.UnpackPackage(root, from, &archive.Room{Left: most})
}

// Contents describes every path of an archive of Pack or Changes: a file's mode, size and SHA-256,
// a folder's mode, a link's target, or that a change deletes it. No data is an empty archive.
// Hostile archives are refused as Unpack refuses them.
func Contents(data Source) (map[string]string, error) { return archive.Contents(data) }

// File is what an archive has at a path.
type File = archive.File

// Files takes the wanted paths out of an archive of Pack or Changes, with the contents of files up
// to a limit in bytes. Hostile archives are refused as Unpack refuses them.
func Files(data Source, limit int64, wanted map[string]bool) (map[string]File, error) {
	return archive.Files(data, limit, wanted)
}

// Check reports what keeps a snapshot that somebody unknown packed from being unpacked, and more
// than most bytes of content.
func Check(snapshot io.Reader, most int64) error { return archive.Check(snapshot, most) }

// Tree gives the files of a snapshot of Pack with a change of Changes applied over it, in memory;
// no change is none. Files above a size in bytes are left out, and ErrTooLarge says that those
// which are not are more than 512 MiB. Hostile archives are refused as Unpack refuses them.
func Tree(limit int64, snapshot, change Source) (fstest.MapFS, error) {
	if change == nil {
		return archive.Tree(limit, snapshot)
	}
	return archive.Tree(limit, snapshot, change)
}

// Filtered is a change from which Filter took what must not reach the tests.
type Filtered = archive.Filtered

// Filter takes out of a change all that touches protected paths, and links that lead out of the
// workspace, which is at workdir. A change that makes a link of the snapshot lead out is
// refused with ErrInvalid.
func Filter(snapshot, change Source, workdir string, protected func(name string) bool) (Filtered, error) {
	return archive.Filter(snapshot, change, workdir, protected)
}
