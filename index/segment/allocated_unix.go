//go:build unix

package segment

import (
	"io/fs"
	"syscall"
)

// allocated is how many bytes a file takes, its holes left out.
func allocated(info fs.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int64(stat.Blocks) * 512
	}
	return info.Size()
}
