package archive

import (
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing/fstest" // it has the standard library's file system in memory
)

// maxTree bounds the contents that Tree holds, in bytes.
var maxTree int64 = 512 << 20

// Tree gives the files of a snapshot with changes applied over it, in memory. Files above a size
// are left out. ErrTooLarge where those that are left are more than 512 MiB.
func Tree(limit int64, snapshot Source, changes ...Source) (fstest.MapFS, error) {
	tree, held := fstest.MapFS{}, int64(0)
	for _, data := range append([]Source{snapshot}, changes...) {
		err := data.read(func(e entry, content io.Reader) error {
			if e.deleted || !e.mode.IsDir() {
				remove(tree, e.name)
			} else if f := tree[e.name]; f != nil && !f.Mode.IsDir() {
				delete(tree, e.name)
			}
			file := &fstest.MapFile{Mode: e.mode}
			switch {
			case e.deleted, e.mode.IsRegular() && e.size > limit:
				return nil
			case e.mode&fs.ModeSymlink != 0:
				file.Data = []byte(e.link)
			case e.mode.IsRegular():
				if held += e.size; held > maxTree {
					return fmt.Errorf("hold the tree: %w: more than %d bytes", ErrTooLarge, maxTree)
				}
				var err error
				if file.Data, err = io.ReadAll(content); err != nil {
					return fmt.Errorf("%s: %w: %w", e.name, ErrInvalid, err)
				}
			}
			tree[e.name] = file
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return tree, nil
}

// remove takes a path away, with all below it.
func remove(tree fstest.MapFS, name string) {
	f := tree[name]
	delete(tree, name)
	if f == nil || !f.Mode.IsDir() { // folders have entries of their own
		return
	}
	for other := range tree {
		if strings.HasPrefix(other, name+"/") {
			delete(tree, other)
		}
	}
}
