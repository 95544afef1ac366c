package merkle

import (
	"cmp"
	"path"
	"slices"
)

// File is a file of a tree.
type File struct {
	Path   string
	Digest Digest
	Size   int64 // in bytes
}

// Rename is a file that is gone from one path and new at another, with the same content.
type Rename struct {
	From string
	File // as it is now
}

// Changes is what leads from one tree to another, each list sorted by path. A renamed file is
// neither added nor removed.
type Changes struct {
	Added, Modified, Removed []File
	Renamed                  []Rename
	Visited                  int // nodes looked at: it follows the size of the change, not of the trees
}

// Diff compares two trees. It takes what is unknown in the newer one for unchanged.
// The older one may be nil.
func Diff(older, newer *Node) Changes {
	d := differ{}
	if older == nil {
		older = &Node{Folder: true}
	}
	carried := Carry(older, newer)
	d.compare("", older, &carried)
	d.findRenames()
	byPath := func(a, b File) int { return cmp.Compare(a.Path, b.Path) }
	for _, list := range [][]File{d.Added, d.Modified, d.Removed} {
		slices.SortFunc(list, byPath)
	}
	slices.SortFunc(d.Renamed, func(a, b Rename) int { return cmp.Compare(a.Path, b.Path) })
	return d.Changes
}

type differ struct{ Changes }

// compare looks at two nodes of the same path; either may be nil.
func (d *differ) compare(at string, older, newer *Node) {
	d.Visited++
	switch {
	case older != nil && newer != nil && older.Folder == newer.Folder && older.Digest == newer.Digest && !older.Partial:
		return
	case older != nil && newer != nil && older.Folder && newer.Folder:
		d.compareFolders(at, older.Children, newer.Children)
	case older != nil && newer != nil && !older.Folder && !newer.Folder && !older.Unknown:
		d.Modified = append(d.Modified, fileOf(at, newer))
	default:
		d.Removed = d.all(d.Removed, at, older)
		d.Added = d.all(d.Added, at, newer)
	}
}

func (d *differ) compareFolders(at string, older, newer []Node) {
	for len(older) > 0 || len(newer) > 0 {
		var order int
		switch {
		case len(older) == 0:
			order = 1
		case len(newer) == 0:
			order = -1
		default:
			order = cmp.Compare(older[0].Name, newer[0].Name)
		}
		var o, n *Node
		name := ""
		if order <= 0 {
			o, older = &older[0], older[1:]
			name = o.Name
		}
		if order >= 0 {
			n, newer = &newer[0], newer[1:]
			name = n.Name
		}
		d.compare(join(at, name), o, n)
	}
}

// all appends every file at or below a node.
func (d *differ) all(list []File, at string, n *Node) []File {
	switch {
	case n == nil:
	case n.Folder:
		d.Visited += len(n.Children)
		for i := range n.Children {
			list = d.all(list, join(at, n.Children[i].Name), &n.Children[i])
		}
	case !n.Unknown:
		list = append(list, fileOf(at, n))
	}
	return list
}

func fileOf(at string, n *Node) File { return File{Path: at, Digest: n.Digest, Size: n.Size} }

// findRenames pairs removed with added files of the same content, those that keep their name first.
// Empty files are all alike, which says nothing.
func (d *differ) findRenames() {
	from, to := map[string]bool{}, map[string]bool{}
	for _, key := range []func(File) string{
		func(f File) string { return string(f.Digest[:]) + path.Base(f.Path) },
		func(f File) string { return string(f.Digest[:]) },
	} {
		gone := map[string][]File{}
		for _, f := range d.Removed {
			if f.Size > 0 && !from[f.Path] {
				gone[key(f)] = append(gone[key(f)], f)
			}
		}
		for _, f := range d.Added {
			if queue := gone[key(f)]; len(queue) > 0 && !to[f.Path] {
				d.Renamed = append(d.Renamed, Rename{From: queue[0].Path, File: f})
				from[queue[0].Path], to[f.Path] = true, true
				gone[key(f)] = queue[1:]
			}
		}
	}
	d.Removed = slices.DeleteFunc(d.Removed, func(f File) bool { return from[f.Path] })
	d.Added = slices.DeleteFunc(d.Added, func(f File) bool { return to[f.Path] })
}

// Carry gives the newer tree with what is unknown in it as the older one has it: the tree that an
// index holds after a walk that was not whole. Of what neither knows nothing remains.
func Carry(older, newer *Node) Node {
	if !newer.Partial {
		return *newer
	}
	if newer.Unknown && !newer.Folder {
		if older == nil {
			return Node{Name: newer.Name, Unknown: true, Partial: true}
		}
		return *older
	}
	carried := Node{Name: newer.Name, Children: make([]Node, 0, len(newer.Children))}
	for i := range newer.Children {
		carried.add(Carry(older.child(newer.Children[i].Name), &newer.Children[i]))
	}
	if newer.Unknown && older != nil && older.Folder { // what was not listed may still be there
		for i := range older.Children {
			if newer.child(older.Children[i].Name) == nil {
				carried.add(older.Children[i])
			}
		}
	}
	if newer.Unknown && older != nil && !older.Folder && len(carried.Children) == 0 {
		return *older
	}
	carried.seal()
	return carried
}

// add takes a child up, but for those that hold nothing.
func (n *Node) add(child Node) {
	if child.Unknown && !child.Folder || child.Folder && len(child.Children) == 0 {
		return
	}
	n.Children = append(n.Children, child)
}
