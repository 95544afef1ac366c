package archive

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// File is what an archive has at a path.
type File struct {
	Mode    fs.FileMode
	Link    string // target of a symbolic link
	Size    int64
	Deleted bool
	Data    []byte // content of a regular file of at most the limit that was asked for
}

// errAll ends the reading of an archive from which everything is taken.
var errAll = errors.New("everything is taken")

// Files takes the wanted paths out of an archive, with the contents of files up to a limit in
// bytes. Each path is in an archive once, so it reads no further than to the last of them.
func Files(data Source, limit int64, wanted map[string]bool) (map[string]File, error) {
	found := map[string]File{}
	if len(wanted) == 0 {
		return found, nil
	}
	err := data.read(func(e entry, content io.Reader) error {
		if !wanted[e.name] {
			return nil
		}
		f := File{Mode: e.mode, Link: e.link, Size: e.size, Deleted: e.deleted}
		if e.mode.IsRegular() && !e.deleted && e.size <= limit {
			var err error
			if f.Data, err = io.ReadAll(content); err != nil {
				return fmt.Errorf("%s: %w: %w", e.name, ErrInvalid, err)
			}
		}
		if found[e.name] = f; len(found) == len(wanted) {
			return errAll
		}
		return nil
	})
	if errors.Is(err, errAll) {
		err = nil
	}
	return found, err
}
