// Package merkle makes the Merkle tree of a working tree: every file by the digest of its
// content, every folder by those of its children, so that two trees are compared by
// looking only where they differ.
//
// What could not be looked at is unknown, which is something else than gone: nothing below it is
// ever reported as removed.
package merkle

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"iter"
	"slices"
)

// Digest is a SHA-256.
type Digest [sha256.Size]byte

func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Node is a file or a folder. Names are bytes as the file system has them, not always UTF-8. A
// folder without an indexed file below is not in the tree.
type Node struct {
	Name   string
	Digest Digest // of a file its content's
	Size   int64  // of a file, in bytes
	Folder bool
	// Unknown says that the file could not be read, or that the folder's list is not whole.
	// Partial says the same of something at or below the node. The digest of a partial folder is
	// none that a whole one can have.
	Unknown  bool
	Partial  bool
	Children []Node // of a folder, sorted by name
}

// Kinds of a node, as they are digested.
const (
	fileKind    = 'f'
	folderKind  = 'd'
	unknownKind = '?'
)

func (n *Node) kind() byte {
	switch {
	case n.Partial:
		return unknownKind
	case n.Folder:
		return folderKind
	}
	return fileKind
}

// seal sorts a folder's children and sets its digest, which depends on their names,
// kinds and digests alone.
func (n *Node) seal() {
	n.Folder = true
	n.Partial = n.Unknown
	slices.SortFunc(n.Children, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	buffer := make([]byte, 0, 32+64*len(n.Children))
	buffer = append(buffer, "rondo folder 1\n"...)
	for i := range n.Children {
		c := &n.Children[i]
		n.Partial = n.Partial || c.Partial
		buffer = append(buffer, c.kind())
		buffer = binary.AppendUvarint(buffer, uint64(len(c.Name)))
		buffer = append(buffer, c.Name...)
		buffer = append(buffer, c.Digest[:]...)
	}
	if n.Partial {
		buffer = append(buffer, unknownKind)
	}
	n.Digest = sha256.Sum256(buffer)
}

func (n *Node) child(name string) *Node {
	if n == nil || !n.Folder {
		return nil
	}
	i, found := slices.BinarySearchFunc(n.Children, name,
		func(c Node, name string) int { return cmp.Compare(c.Name, name) })
	if !found {
		return nil
	}
	return &n.Children[i]
}

// Files yields every known file with its path, in the order of names.
func (n *Node) Files() iter.Seq2[string, *Node] {
	return func(yield func(string, *Node) bool) { n.files("", yield) }
}

func (n *Node) files(path string, yield func(string, *Node) bool) bool {
	if !n.Folder {
		return n.Unknown || yield(path, n)
	}
	for i := range n.Children {
		if c := &n.Children[i]; !c.files(join(path, c.Name), yield) {
			return false
		}
	}
	return true
}

func join(folder, name string) string {
	if folder == "" {
		return name
	}
	return folder + "/" + name
}
