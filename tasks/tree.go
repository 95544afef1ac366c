package tasks

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// node is one entry of a scanned task folder. Contents stay in the pack and
// are read on demand.
type node struct {
	name     string
	mode     fs.FileMode // type, and 0644 or 0755
	size     int64
	source   fs.FS // of a regular file
	path     string
	link     string // target of a symbolic link
	children map[string]*node
}

func newDir(name string) *node {
	return &node{name: name, mode: fs.ModeDir | 0o755, children: map[string]*node{}}
}

func (n *node) isDir() bool             { return n.mode.IsDir() }
func (n *node) isLink() bool            { return n.mode&fs.ModeSymlink != 0 }
func (n *node) child(name string) *node { return n.children[name] }

// sorted lists the children of a directory by name.
func (n *node) sorted() []*node {
	list := make([]*node, 0, len(n.children))
	for _, name := range slices.Sorted(maps.Keys(n.children)) {
		list = append(list, n.children[name])
	}
	return list
}

// find follows a slash-separated path below n without following links.
func (n *node) find(name string) *node {
	if name == "." {
		return n
	}
	for part := range strings.SplitSeq(name, "/") {
		if n = n.children[part]; n == nil {
			return nil
		}
	}
	return n
}

// open opens a regular file and holds it to the size it had when scanned.
func (n *node) open() (io.ReadCloser, error) {
	file, err := n.source.Open(n.path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() != n.size) {
		err = errors.New("changed since the pack was loaded")
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(file, n.size), file}, nil
}

// readText reads a child that must be a regular text file of at most limit
// bytes.
func (n *node) readText(name string, limit int64) (string, error) {
	file := n.child(name)
	switch {
	case file == nil:
		return "", fmt.Errorf("%s: missing", name)
	case !file.mode.IsRegular():
		return "", fmt.Errorf("%s: is no regular file", name)
	case file.size > limit:
		return "", fmt.Errorf("%s: %d bytes, the limit is %d", name, file.size, limit)
	}
	data, err := file.read()
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	if !utf8.Valid(data) {
		return "", fmt.Errorf("%s: is not UTF-8 text", name)
	}
	return string(data), nil
}

func (n *node) read() ([]byte, error) {
	file, err := n.open()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(file)
}

// tree makes a file system of n, in which every link must stay.
func (n *node) tree(label string) (fs.FS, error) {
	if err := checkLinks(n, "."); err != nil {
		return nil, fmt.Errorf("%s/%w", label, err)
	}
	return &tree{n}, nil
}

// checkLinks refuses links that are absolute or lead out of the folder.
func checkLinks(dir *node, at string) error {
	for _, child := range dir.sorted() {
		name := path.Join(at, child.name)
		if child.isDir() {
			if err := checkLinks(child, name); err != nil {
				return err
			}
		}
		if !child.isLink() {
			continue
		}
		if path.IsAbs(child.link) || !fs.ValidPath(path.Join(at, child.link)) {
			return fmt.Errorf("%s: symbolic link to %q leads out of the folder", name, child.link)
		}
	}
	return nil
}

// tree is a node as a file system: fs.FS, fs.ReadLinkFS and fs.StatFS.
type tree struct{ root *node }

var _ fs.ReadLinkFS = (*tree)(nil)

// maxLinks is how many links one name may pass, as on Linux.
const maxLinks = 40

// resolve finds a name; follow says whether a link at its end is followed.
func (t *tree) resolve(op, name string, follow bool) (*node, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	at, rest, links := ".", name, 0
	for rest != "." && rest != "" {
		part, tail, more := strings.Cut(rest, "/")
		next := path.Join(at, part)
		if !fs.ValidPath(next) { // ".." above the root
			return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
		}
		found := t.root.find(next)
		if found == nil {
			return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
		}
		if found.isLink() && (more || follow) {
			if links++; links > maxLinks {
				return nil, &fs.PathError{Op: op, Path: name, Err: errors.New("too many symbolic links")}
			}
			rest = path.Join(found.link, tail)
			continue
		}
		at, rest = next, tail
	}
	return t.root.find(at), nil
}

// Open opens a file or a directory, following links.
func (t *tree) Open(name string) (fs.File, error) {
	found, err := t.resolve("open", name, true)
	if err != nil {
		return nil, err
	}
	info := &info{path.Base(name), found}
	if found.isDir() {
		return &openDir{info: info, rest: found.sorted()}, nil
	}
	content, err := found.open()
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &openFile{content, info}, nil
}

// ReadLink gives the target of a link.
func (t *tree) ReadLink(name string) (string, error) {
	found, err := t.resolve("readlink", name, false)
	if err != nil {
		return "", err
	}
	if !found.isLink() {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	return found.link, nil
}

// Lstat describes a name without following a link at its end.
func (t *tree) Lstat(name string) (fs.FileInfo, error) {
	found, err := t.resolve("lstat", name, false)
	if err != nil {
		return nil, err
	}
	return &info{path.Base(name), found}, nil
}

// info is fs.FileInfo and fs.DirEntry of a node.
type info struct {
	name string
	node *node
}

func (i *info) Name() string               { return i.name }
func (i *info) Size() int64                { return i.node.size }
func (i *info) Mode() fs.FileMode          { return i.node.mode }
func (i *info) Type() fs.FileMode          { return i.node.mode.Type() }
func (i *info) ModTime() time.Time         { return time.Time{} }
func (i *info) IsDir() bool                { return i.node.isDir() }
func (i *info) Sys() any                   { return nil }
func (i *info) Info() (fs.FileInfo, error) { return i, nil }
func (i *info) String() string             { return fs.FormatDirEntry(i) }

type openFile struct {
	io.ReadCloser
	info *info
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }

type openDir struct {
	info *info
	rest []*node
}

func (d *openDir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *openDir) Close() error               { return nil }
func (d *openDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.info.name, Err: errors.New("is a directory")}
}

func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	take := len(d.rest)
	if n > 0 && take == 0 {
		return nil, io.EOF
	}
	if n > 0 {
		take = min(n, take)
	}
	entries := make([]fs.DirEntry, take)
	for i, child := range d.rest[:take] {
		entries[i] = &info{child.name, child}
	}
	d.rest = d.rest[take:]
	return entries, nil
}
