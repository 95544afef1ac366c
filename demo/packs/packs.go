// Package packs holds the task packs that come with Rondo.
package packs

import (
	"embed"
	"io/fs"
)

// The folders of the two Go tasks are called _repo: the go command passes over
// such folders, so the bugs in them are no packages of this module.
//
//go:embed all:small all:sample all:large
var embedded embed.FS

// Small is the pack that the demo trains on: eight programs of a few lines of
// POSIX shell, with one or two faults each. Their tests take milliseconds, and
// their verifiers give credit for a part of the repair.
func Small() fs.FS { return pack("small") }

// Sample has ten small repositories, six in POSIX shell, two in Go and
// two in Python, whose verifiers give credit for a part of the repair, too.
func Sample() fs.FS { return pack("sample") }

// Large is a second pack: two repositories of some 190 files each, again with
// one bug. Their instructions name nothing by which a listing or grep would find
// the faulty file: it takes a search by meaning.
func Large() fs.FS { return pack("large") }

func pack(name string) fs.FS {
	tree, err := fs.Sub(embedded, name)
	if err != nil {
		panic(err) // the names are valid paths, which is all that Sub checks
	}
	return tree
}
