package update

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/index/merkle"
	"github.com/rondo-rl/rondo/index/seal"
)

// tree is what an index has of each file.
type tree map[string]held

// held is a file's content, by the key's mark, and its chunks.
type held struct {
	mark   [16]byte
	chunks int
}

// root names a tree and its index's identity: two updaters with one key give equal trees the same name, whichever way they came to them.
func (x *Index) root(t tree) (string, error) {
	node, err := merkle.Build(func(yield func(merkle.File) bool) {
		for path, h := range t {
			f := merkle.File{Path: path}
			copy(f.Digest[:], h.mark[:])
			if !yield(f) {
				return
			}
		}
	})
	return x.Keys.Root(sha256.Sum256(append(node.Digest[:], Identity(x.Embedder)...))), err
}

// step is one file's part of what leads from one tree to another.
type step struct {
	path    string
	removed bool
	file    merkle.File // unless removed
	mark    [16]byte
}

// order sorts a folder's files that are gone before a file that takes its place, and a file before the folder: no tree on the way has both.
func (s step) order() string {
	if s.removed {
		return s.path
	}
	return s.path + "/\xff"
}

// stepsTo lists what leads to a tree that was walked. What the walk could not look at stays as it is.
func (t tree) stepsTo(walked *merkle.Node, keys *seal.Keys) (steps []step) {
	known := make(map[string]bool, len(t))
	for path, n := range walked.Files() {
		known[path] = true
		mark := keys.Content(n.Digest)
		if h, ok := t[path]; !ok || h.mark != mark {
			steps = append(steps, step{path: path, file: merkle.File{Path: path, Digest: n.Digest, Size: n.Size}, mark: mark})
		}
	}
	for path := range t {
		if !known[path] && !unknown(walked, path) {
			steps = append(steps, step{path: path, removed: true})
		}
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Compare(a.order(), b.order()) })
	return steps
}

// unknown reports whether a walk could not look at a path, or at a folder above it.
func unknown(node *merkle.Node, path string) bool {
	for name := range strings.SplitSeq(path, "/") {
		if node.Unknown {
			return true
		}
		i, found := slices.BinarySearchFunc(node.Children, name, func(c merkle.Node, name string) int { return cmp.Compare(c.Name, name) })
		if !found {
			return false
		}
		node = &node.Children[i]
	}
	return node.Unknown
}

// chunks counts those of all files.
func (t tree) chunks() (n int) {
	for _, h := range t {
		n += h.chunks
	}
	return n
}
