package tasks

import (
	"embed"
	"io/fs"
)

// The folders of the two Go tasks are called _repo: the go command passes over
// such folders, so the bugs in them are no packages of this module.
//
//go:embed all:sample
var embedded embed.FS

// Sample is the pack that comes with Rondo: eight small repositories with one
// bug each, six in POSIX shell and two in Go.
func Sample() fs.FS {
	pack, err := fs.Sub(embedded, "sample")
	if err != nil {
		panic(err) // the name is a valid path, which is all that Sub checks
	}
	return pack
}
