// Package whole writes files for other programs to read: each is there whole or not at all.
package whole

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// File writes a file with the folders that it lies in. Where fill fails, an older file of
// the name stays as it was.
func File(path string, fill func(w io.Writer) error) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(file.Name())
		}
	}()
	if err = errors.Join(fill(file), file.Chmod(0o644), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// Copy makes a copy of a file.
func Copy(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	return File(to, func(w io.Writer) error {
		_, err := io.Copy(w, source)
		return err
	})
}
