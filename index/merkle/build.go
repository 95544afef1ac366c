package merkle

import (
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Build makes the tree of files that are known, in any order, as an index lists them. Its digests
// are those of a walk of the same files.
func Build(files iter.Seq[File]) (Node, error) {
	list := slices.Collect(files)
	split := make([]splitFile, len(list))
	for i := range list {
		split[i] = splitFile{strings.Split(list[i].Path, "/"), &list[i]}
	}
	slices.SortFunc(split, func(a, b splitFile) int { return slices.Compare(a.path, b.path) })
	root := Node{}
	err := root.fill(split, 0)
	return root, err
}

// splitFile is a file whose path is cut into names.
type splitFile struct {
	path []string
	*File
}

// fill makes the node a folder of the files, which are sorted and agree on the first names.
func (n *Node) fill(files []splitFile, depth int) error {
	for len(files) > 0 {
		name := files[0].path[depth]
		if name == "" || name == "." || name == ".." {
			return fmt.Errorf("%q is not a path within a tree", files[0].Path)
		}
		end := slices.IndexFunc(files, func(f splitFile) bool { return f.path[depth] != name })
		if end < 0 {
			end = len(files)
		}
		child := Node{Name: name}
		if first := files[0]; len(first.path) == depth+1 {
			if end > 1 {
				return fmt.Errorf("%q appears twice, or is a file and a folder", first.Path)
			}
			child.Digest, child.Size = first.Digest, first.Size
		} else if err := child.fill(files[:end], depth+1); err != nil {
			return err
		}
		n.Children = append(n.Children, child)
		files = files[end:]
	}
	n.seal()
	return nil
}

// Keyed gives the tree with other digests in the place of its files': so that it can be compared
// with one whose files are known by those alone.
func (n *Node) Keyed(key func(Digest) Digest) Node {
	keyed := *n
	if !n.Folder {
		keyed.Digest = key(n.Digest)
		return keyed
	}
	keyed.Children = make([]Node, len(n.Children))
	for i := range n.Children {
		keyed.Children[i] = n.Children[i].Keyed(key)
	}
	keyed.seal()
	return keyed
}
