// Package durable brings files and folders to the disk: a file that is synced is lost in a power
// cut where its name, or that of a folder above it, is not.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// MkdirAll makes a folder, by an absolute path or by one from the working folder, with all above
// it, and returns when their names are on the disk, also those that were there before. Folders that
// this process may not open were made by somebody else, and are left.
func MkdirAll(folder string, mode fs.FileMode) error {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, mode); err != nil {
		return err
	}
	for above := filepath.Dir(folder); above != folder; folder, above = above, filepath.Dir(above) {
		if err := Sync(above); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}

// Sync brings a file's content, or the names in a folder, to the disk. One that
// is not there is no error.
func Sync(name string) error {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// SyncTree brings all that is in a folder to the disk. What is removed meanwhile is no error.
func SyncTree(folder string) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		sync := Sync
		if e.IsDir() {
			sync = SyncTree
		}
		if err := sync(filepath.Join(folder, e.Name())); err != nil {
			return err
		}
	}
	return Sync(folder)
}
