package merkle

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// statIn looks at an entry of an open folder, not following a link.
func statIn(_ *os.Root, list *os.File, name string) (stamp, error) {
	var s unix.Stat_t
	for {
		err := unix.Fstatat(int(list.Fd()), name, &s, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil {
			return stampOf(&s), nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return stamp{}, &fs.PathError{Op: "stat", Path: name, Err: err}
		}
	}
}

// statOf looks at an open file.
func statOf(f *os.File) (stamp, error) {
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil {
		return stamp{}, &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return stampOf(&s), nil
}

func stampOf(s *unix.Stat_t) stamp {
	return stamp{
		size: s.Size, modified: s.Mtim.Nano(), changed: s.Ctim.Nano(), inode: s.Ino,
		device: uint64(s.Dev), mode: s.Mode,
		regular: s.Mode&unix.S_IFMT == unix.S_IFREG, folder: s.Mode&unix.S_IFMT == unix.S_IFDIR,
		link: s.Mode&unix.S_IFMT == unix.S_IFLNK,
	}
}
