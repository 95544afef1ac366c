package tasks

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/rondo-rl/rondo/sandbox"
)

// Archive is a tree packed as sandbox.PackTo does, in a file: it may be larger than the memory.
type Archive struct{ file *os.File }

// Pack packs a tree. Whoever has the archive closes it.
func Pack(tree fs.FS) (*Archive, error) {
	file, err := os.CreateTemp("", "rondo-pack-*")
	if err != nil {
		return nil, err
	}
	a := &Archive{file}
	if err := sandbox.PackTo(file, tree); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// Close removes the archive.
func (a *Archive) Close() error { return errors.Join(a.file.Close(), os.Remove(a.file.Name())) }

// Size is the archive's, in bytes.
func (a *Archive) Size() (int64, error) {
	info, err := a.file.Stat()
	if err != nil {
		return 0, fmt.Errorf("archive of a tree: %w", err)
	}
	return info.Size(), nil
}

// digest is the archive's SHA-256, by which a store names it.
func (a *Archive) digest() (string, error) {
	size, err := a.Size()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.Copy(sum, io.NewSectionReader(a, 0, size))
	return hex.EncodeToString(sum.Sum(nil)), err
}

// ReadAt implements io.ReaderAt.
func (a *Archive) ReadAt(p []byte, at int64) (int, error) { return a.file.ReadAt(p, at) }

// Open reads the archive from its beginning; it is a sandbox.Source. Readings may overlap.
func (a *Archive) Open() (io.ReadCloser, error) {
	size, err := a.Size()
	if err != nil {
		return nil, err
	}
	return io.NopCloser(io.NewSectionReader(a, 0, size)), nil
}
