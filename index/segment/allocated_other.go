//go:build !unix

package segment

import "io/fs"

// allocated is how many bytes a file takes at most.
func allocated(info fs.FileInfo) int64 { return info.Size() }
