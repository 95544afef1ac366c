package archive

import (
	"io/fs"
	"syscall"
	"time"
)

// openFlags: never wait for the other end of a pipe that replaced a file after it was
// listed, and follow no link.
const openFlags = syscall.O_NONBLOCK | syscall.O_NOFOLLOW

// identity is what the kernel says of a file: its number, size, mode and the time of
// the last change to either.
type identity struct {
	known  bool
	inode  uint64
	size   int64
	mode   uint32
	second int64
	nano   int64
}

func identify(info fs.FileInfo) identity {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}
	}
	return identity{known: true, inode: stat.Ino, size: stat.Size, mode: stat.Mode, second: int64(stat.Ctim.Sec),
		nano: int64(stat.Ctim.Nsec)}
}

func (i identity) changed() time.Time { return time.Unix(i.second, i.nano) }

// device is the number of the file system that a folder lies on.
func device(info fs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Dev
	}
	return 0
}
