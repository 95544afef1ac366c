package archive

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"
)

// Base is a tree as it was when Scan read it, against which Diff compares.
type Base struct {
	files map[string]state
}

// state is what a change is told by; identity and checked only save reading a file again.
type state struct {
	mode     fs.FileMode
	link     string
	size     int64
	sum      [sha256.Size]byte
	identity identity
	checked  time.Time
}

// racy is how old a change time must be to prove that a file was not written after it was read: the coarsest clock tick of
// a kernel is 10 ms.
const racy = 50 * time.Millisecond

// Scan reads the tree below root as a base.
func Scan(root *os.Root) (*Base, error) {
	base := &Base{files: map[string]state{}}
	err := walk(root, func(name string, info fs.FileInfo) error {
		at := time.Now()
		e, err := load(root, name, info)
		if err != nil {
			return err
		}
		base.files[name] = e.state(info, at)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the base of the workspace: %w", err)
	}
	return base, nil
}

// Diff writes what differs from base as a change: additions, edits, modes and links in the order of the walk, then deletions.
// It is nil when nothing differs. Pipes, sockets and devices are no part of a workspace and are passed over.
func Diff(root *os.Root, base *Base) ([]byte, error) {
	out, err := newWriter()
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool, len(base.files))
	err = walk(root, func(name string, info fs.FileInfo) error {
		seen[name] = true
		before, known := base.files[name]
		if known && before.unchanged(info) {
			return nil
		}
		at := time.Now()
		e, err := load(root, name, info)
		if err != nil {
			return err
		}
		now := e.state(info, at)
		if known && now.equal(before) {
			base.files[name] = now
			return nil
		}
		return out.add(e)
	})
	for _, name := range deletions(base, seen) {
		err = errors.Join(err, out.add(entry{name: name, deleted: true}))
	}
	if err != nil {
		return nil, fmt.Errorf("read the workspace's changes: %w", err)
	}
	if out.budget.files == 0 {
		return nil, nil
	}
	return out.finish()
}

// deletions are the base's paths that are gone, without those below one that is gone itself.
func deletions(base *Base, seen map[string]bool) []string {
	var gone []string
	for name := range base.files {
		if !seen[name] {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	return slices.DeleteFunc(gone, func(name string) bool { return below(name, gone) })
}

// below tells whether one of the sorted paths is a parent of name.
func below(name string, paths []string) bool {
	for i := range name {
		if name[i] != '/' {
			continue
		}
		if _, found := slices.BinarySearch(paths, name[:i]); found {
			return true
		}
	}
	return false
}

// walk visits what a workspace may hold below root: folders before their contents, names in byte order, links not followed.
// It does without fs.WalkDir, which refuses names that are not UTF-8.
func walk(root *os.Root, visit func(name string, info fs.FileInfo) error) error {
	w := walker{root: root, visit: visit}
	return w.folder(".")
}

type walker struct {
	root  *os.Root
	visit func(name string, info fs.FileInfo) error
	count int
}

func (w *walker) folder(folder string) error {
	names, err := w.list(folder)
	if err != nil {
		return err
	}
	for _, base := range names {
		name := path.Join(folder, base)
		if w.count++; w.count > MaxFiles {
			return fmt.Errorf("%w: more than %d entries", ErrTooLarge, MaxFiles)
		}
		if len(name) > maxName {
			return fmt.Errorf("%w: %.200s…: a path of %d bytes (limit %d)", ErrTooLarge, name, len(name), maxName)
		}
		if err := w.entry(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err // what is gone since its folder was listed was removed by a running process
		}
	}
	return nil
}

func (w *walker) list(folder string) ([]string, error) {
	dir, err := w.root.OpenFile(folder, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(MaxFiles + 1)
	if err != nil && err != io.EOF {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

func (w *walker) entry(name string) error {
	info, err := w.root.Lstat(name)
	if err != nil {
		return err
	}
	switch info.Mode().Type() {
	case 0, fs.ModeSymlink:
		return w.visit(name, info)
	case fs.ModeDir:
		if err := w.visit(name, info); err != nil {
			return err
		}
		return w.folder(name)
	}
	return nil
}

// load reads one path of the workspace. What is not the same kind of thing any more when it is opened is refused by the open.
func load(root *os.Root, name string, info fs.FileInfo) (entry, error) {
	e := entry{name: name, mode: info.Mode().Type() | info.Mode().Perm()}
	switch {
	case info.IsDir():
		return e, nil
	case info.Mode()&fs.ModeSymlink != 0:
		link, err := root.Readlink(name)
		e.link, e.mode = link, fs.ModeSymlink|0o777
		return e, err
	case info.Size() > MaxBytes:
		return e, fmt.Errorf("%s: %w: %d bytes (limit %d)", name, ErrTooLarge, info.Size(), int64(MaxBytes))
	}
	file, err := root.OpenFile(name, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return e, err
	}
	defer file.Close()
	var content bytes.Buffer
	content.Grow(int(info.Size()) + bytes.MinRead)
	// A file that grows meanwhile is taken as far as it was when it was listed.
	_, err = io.Copy(&content, io.LimitReader(file, info.Size()))
	e.data = content.Bytes()
	return e, err
}

func (e entry) state(info fs.FileInfo, at time.Time) state {
	return state{mode: e.mode, link: e.link, size: int64(len(e.data)), sum: sha256.Sum256(e.data), identity: identify(info), checked: at}
}

func (s state) equal(other state) bool {
	return s.mode == other.mode && s.link == other.link && s.size == other.size && s.sum == other.sum
}

// unchanged proves by the kernel's own records, which a process cannot forge, that a file is as it was when it was read.
func (s state) unchanged(info fs.FileInfo) bool {
	now := identify(info)
	return now.known && now == s.identity && s.checked.Sub(now.changed()) > racy
}
