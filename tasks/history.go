package tasks

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1" // #nosec: it is what Git names objects by
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing/fstest" // it has the standard library's file system in memory
)

// scrubHistory replaces a snapshot's .git folder by a new repository of one commit, of all its
// files: the objects, refs and reflogs of the old one may hold the fix. Nothing of the old folder
// is kept, so nothing in it needs to be understood or trusted.
//
// With wanted, a snapshot that has none gets such a repository, too.
func scrubHistory(task *Task, wanted bool) error {
	snapshot, ok := task.Snapshot.(*tree)
	if !ok {
		return nil
	}
	if inner := innerRepository(snapshot.root, "."); inner != "" {
		return fmt.Errorf("snapshot: %s: a repository inside of the repository may hold the fix: take it out, or its .git", inner)
	}
	old := snapshot.root.child(".git")
	if old == nil && !wanted {
		return nil
	}
	delete(snapshot.root.children, ".git")
	fresh, err := oneCommit(snapshot.root)
	if err != nil {
		return fmt.Errorf("snapshot: make its repository of one commit: %w", err)
	}
	snapshot.root.children[".git"] = fresh
	if old == nil {
		return nil
	}
	task.Warnings = append(task.Warnings,
		"the snapshot's .git folder is replaced by a repository of one commit: no history can be read in it")
	return nil
}

// innerRepository finds a .git below the top folder, or "".
func innerRepository(dir *node, at string) string {
	for _, child := range dir.sorted() {
		name := path.Join(at, child.name)
		if child.name == ".git" && at != "." {
			return name
		}
		if child.isDir() && name != ".git" {
			if found := innerRepository(child, name); found != "" {
				return found
			}
		}
	}
	return ""
}

const (
	gitConfig = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n"
	gitAuthor = "Rondo <rondo@localhost> 978307200 +0000"
)

// oneCommit makes the .git folder of a repository whose only commit holds a tree.
func oneCommit(root *node) (*node, error) {
	r := &repository{files: fstest.MapFS{}}
	tree, err := r.tree(root, "")
	if err != nil {
		return nil, err
	}
	commit, err := r.object("commit", fmt.Appendf(nil, "tree %x\nauthor %s\ncommitter %s\n\nSnapshot\n", tree,
		gitAuthor, gitAuthor))
	if err != nil {
		return nil, err
	}
	r.put("HEAD", []byte("ref: refs/heads/main\n"))
	r.put("refs/heads/main", []byte(hex.EncodeToString(commit)+"\n"))
	r.put("config", []byte(gitConfig))
	r.put("index", r.index())
	return r.folder(), nil
}

// repository collects the files of a .git folder. Objects are stored without compression, whose
// output changes with the compressor: the same snapshot has the same digest everywhere.
type repository struct {
	files   fstest.MapFS
	tracked []trackedFile
	bytes   int
}

type trackedFile struct {
	name string
	mode uint32
	size int
	id   []byte
}

func (r *repository) put(name string, data []byte) {
	r.files[name] = &fstest.MapFile{Data: data, Mode: 0o644}
}

// maxHistory bounds the objects of a repository, in bytes: they are made in memory.
const maxHistory = 128 << 20

func (r *repository) object(kind string, data []byte) ([]byte, error) {
	content := append(fmt.Appendf(nil, "%s %d\x00", kind, len(data)), data...)
	sum := sha1.Sum(content)
	id := hex.EncodeToString(sum[:])
	var stored bytes.Buffer
	w, err := zlib.NewWriterLevel(&stored, zlib.NoCompression)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(content)
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	if r.bytes += stored.Len(); r.bytes > maxHistory {
		return nil, fmt.Errorf("more than %d bytes", maxHistory)
	}
	r.put("objects/"+id[:2]+"/"+id[2:], stored.Bytes())
	return sum[:], nil
}

// Modes of Git.
const (
	gitFile, gitProgram, gitLink, gitTree = 0o100644, 0o100755, 0o120000, 0o040000
)

// tree stores a folder and all in it; an empty one has no entry, as in Git.
func (r *repository) tree(dir *node, at string) ([]byte, error) {
	children := dir.sorted()
	slices.SortFunc(children, func(a, b *node) int { return strings.Compare(gitOrder(a), gitOrder(b)) })
	var list []byte
	for _, child := range children {
		name := path.Join(at, child.name)
		mode, id, err := r.entry(child, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if id != nil {
			list = append(fmt.Appendf(list, "%o %s\x00", mode, child.name), id...)
		}
	}
	if len(list) == 0 && at != "" {
		return nil, nil
	}
	return r.object("tree", list)
}

// gitOrder is what entries of a tree are sorted by.
func gitOrder(n *node) string {
	if n.isDir() {
		return n.name + "/"
	}
	return n.name
}

func (r *repository) entry(n *node, name string) (mode uint32, id []byte, err error) {
	if n.isDir() {
		id, err = r.tree(n, name)
		return gitTree, id, err
	}
	mode = gitFile
	data := []byte(n.link)
	switch {
	case n.isLink():
		mode = gitLink
	case n.mode&0o111 != 0:
		mode = gitProgram
	}
	if !n.isLink() {
		if data, err = n.read(); err != nil {
			return 0, nil, err
		}
	}
	if id, err = r.object("blob", data); err != nil {
		return 0, nil, err
	}
	r.tracked = append(r.tracked, trackedFile{name, mode, len(data), id})
	return mode, id, nil
}

// index is Git's list of tracked files, version 2. Its times are 0, so that Git looks
// at the files themselves.
func (r *repository) index() []byte {
	slices.SortFunc(r.tracked, func(a, b trackedFile) int { return strings.Compare(a.name, b.name) })
	data := append([]byte("DIRC"), 0, 0, 0, 2)
	data = binary.BigEndian.AppendUint32(data, uint32(len(r.tracked)))
	for _, f := range r.tracked {
		begin := len(data)
		// times, device, inode, mode, owner, group, size
		for _, field := range []uint32{0, 0, 0, 0, 0, 0, f.mode, 0, 0, uint32(f.size)} {
			data = binary.BigEndian.AppendUint32(data, field)
		}
		data = append(data, f.id...)
		data = binary.BigEndian.AppendUint16(data, uint16(min(len(f.name), 0xfff)))
		data = append(data, f.name...)
		data = append(data, make([]byte, 8-(len(data)-begin)%8)...)
	}
	sum := sha1.Sum(data)
	return append(data, sum[:]...)
}

// folder gives the files as a node of a task's tree.
func (r *repository) folder() *node {
	top := newDir(".git")
	for name, file := range r.files {
		dir := top
		parts := strings.Split(name, "/")
		for _, part := range parts[:len(parts)-1] {
			if dir.children[part] == nil {
				dir.children[part] = newDir(part)
			}
			dir = dir.children[part]
		}
		base := path.Base(name)
		dir.children[base] = &node{name: base, mode: fs.FileMode(0o644), size: int64(len(file.Data)),
			source: r.files, path: name}
	}
	return top
}
