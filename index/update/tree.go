package update

import (
	"cmp"
	"crypto/sha256"
	"slices"

	"github.com/rondo-rl/rondo/index/merkle"
)

// tree is what an index has of each file.
type tree map[string]indexedFile

// indexedFile is a file's content, by the key's mark, and its chunks.
type indexedFile struct {
	mark   [16]byte
	chunks int
}

// digestOf is a mark as trees hold it.
func digestOf(mark [16]byte) (d merkle.Digest) {
	copy(d[:], mark[:])
	return d
}

// node is the Merkle tree of the marks.
func (t tree) node() (merkle.Node, error) {
	return merkle.Build(func(yield func(merkle.File) bool) {
		for path, h := range t {
			if !yield(merkle.File{Path: path, Digest: digestOf(h.mark)}) {
				return
			}
		}
	})
}

// keyed is a tree that was walked, by the key's marks.
func (x *Index) keyed(walked *merkle.Node) merkle.Node {
	return walked.Keyed(func(d merkle.Digest) merkle.Digest { return digestOf(x.Keys.Content(d)) })
}

// root names a tree and its index's identity: two updaters with one key give equal trees the same
// name, whichever way they came to them.
func (x *Index) root(node *merkle.Node) string {
	return x.Keys.Root(sha256.Sum256(append(node.Digest[:], Identity(x.Embedder)...)))
}

// step is one file's part of what leads from one tree to another.
type step struct {
	merkle.File // its digest is a mark
	removed     bool
}

func (s step) mark() [16]byte { return [16]byte(s.Digest[:]) }

// order sorts a folder's files that are gone before a file that takes its place, and a file before
// the folder: no tree on the way has both.
func (s step) order() string {
	if s.removed {
		return s.Path
	}
	return s.Path + "/\xff"
}

// stepsTo lists what leads to a tree that was walked. What the walk could
// not look at stays as it is.
func (t tree) stepsTo(keyed *merkle.Node) (steps []step, err error) {
	older, err := t.node()
	if err != nil {
		return nil, err
	}
	changes := merkle.Diff(&older, keyed)
	put := slices.Concat(changes.Added, changes.Modified)
	for _, f := range changes.Removed {
		steps = append(steps, step{f, true})
	}
	for _, r := range changes.Renamed {
		steps = append(steps, step{merkle.File{Path: r.From}, true})
		put = append(put, r.File)
	}
	for _, f := range put {
		steps = append(steps, step{f, false})
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Compare(a.order(), b.order()) })
	return steps, nil
}

// chunks counts those of all files.
func (t tree) chunks() (n int) {
	for _, h := range t {
		n += h.chunks
	}
	return n
}
