//go:build !linux

package merkle

import (
	"io/fs"
	"os"
)

// Inode and change time have no portable form, so elsewhere a file goes by size,
// modification time and mode.

func statIn(root *os.Root, _ *os.File, name string) (stamp, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return stamp{}, err
	}
	return stampOf(info), nil
}

func statOf(f *os.File) (stamp, error) {
	info, err := f.Stat()
	if err != nil {
		return stamp{}, err
	}
	return stampOf(info), nil
}

func stampOf(info fs.FileInfo) stamp {
	return stamp{
		size: info.Size(), modified: info.ModTime().UnixNano(), mode: uint32(info.Mode()),
		regular: info.Mode().IsRegular(), folder: info.IsDir(), link: info.Mode()&fs.ModeSymlink != 0,
	}
}
