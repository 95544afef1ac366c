package archive

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
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

// racy is how old a change time must be to prove that a file was not written after it was read: the
// coarsest clock tick of a kernel is 10 ms.
const racy = 50 * time.Millisecond

// Scan reads the tree below root as a base.
func Scan(root *os.Root) (*Base, error) {
	base := &Base{files: map[string]state{}}
	err := walk(root, func(name string, info fs.FileInfo) error {
		now, err := look(root, name, info)
		if err == nil {
			base.files[name] = now
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the base of the workspace: %w", err)
	}
	return base, nil
}

// ChangeKind is what a change holds.
type ChangeKind struct {
	Differs bool // anything does; when nothing does, what was written of the change is void
	Links   bool // it makes links
}

// Diff writes what differs from base as a change, uncompressed: additions, edits, modes and links
// in the order of the walk, then deletions. Pipes, sockets and devices are no part of a workspace
// and are passed over. Contents of more than disk bytes are refused: holes and hard links may show
// more than a disk of that size can hold when the change is applied.
func Diff(root *os.Root, base *Base, disk int64, to io.Writer) (found ChangeKind, err error) {
	buffered := bufio.NewWriterSize(to, 64<<10)
	out := newPlainWriter(buffered)
	out.budget.most = disk
	seen := make(map[string]bool, len(base.files))
	err = walk(root, func(name string, info fs.FileInfo) error {
		seen[name] = true
		same, err := base.same(root, name, info)
		if err != nil || same {
			return err
		}
		found.Links = found.Links || info.Mode()&fs.ModeSymlink != 0
		return writeOne(out, root, name, info)
	})
	for _, name := range deletions(base, seen) {
		if err == nil {
			err = out.add(entry{name: name, deleted: true}, nil)
		}
	}
	if err == nil {
		err = errors.Join(out.finish(), buffered.Flush())
	}
	if err != nil {
		return ChangeKind{}, fmt.Errorf("read the workspace's changes: %w", err)
	}
	found.Differs = out.budget.files > 0
	return found, nil
}

// same compares a path with the base, and remembers when it was found equal.
func (b *Base) same(root *os.Root, name string, info fs.FileInfo) (bool, error) {
	before, known := b.files[name]
	if !known || before.mode != modeOf(info) || info.Mode().IsRegular() && before.size != info.Size() {
		return false, nil
	}
	if before.unchanged(info) {
		return true, nil
	}
	now, err := look(root, name, info)
	if err != nil || !now.equal(before) {
		return false, err
	}
	b.files[name] = now
	return true, nil
}

// writeOne appends a path as it is now. A file that is written to meanwhile is taken with the size
// that it had when it was listed.
func writeOne(out *writer, root *os.Root, name string, info fs.FileInfo) error {
	e := entry{name: name, mode: modeOf(info)}
	switch {
	case info.IsDir():
		return out.add(e, nil)
	case e.mode&fs.ModeSymlink != 0:
		link, err := readLink(root, name)
		if err != nil {
			return err
		}
		e.link = link
		return out.add(e, nil)
	}
	file, err := openFile(root, name)
	if err != nil {
		return err
	}
	defer file.Close()
	e.size = info.Size()
	return out.add(e, io.MultiReader(file, zeros{}))
}

// openFile opens what was listed as a file. What has become something else since counts as
// gone: it is being changed.
func openFile(root *os.Root, name string) (*os.File, error) {
	file, err := root.OpenFile(name, os.O_RDONLY|openFlags, 0)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENXIO) {
		return nil, fs.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, fs.ErrNotExist, file.Close())
	}
	return file, nil
}

// readLink reads what was listed as a link. What has become something else since
// counts as gone, as with files.
func readLink(root *os.Root, name string) (string, error) {
	link, err := root.Readlink(name)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTDIR) {
		return "", fs.ErrNotExist
	}
	return link, err
}

// zeros stands for what was cut off a file while it was read.
type zeros struct{}

func (zeros) Read(data []byte) (int, error) {
	clear(data)
	return len(data), nil
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
	return slices.DeleteFunc(gone, func(name string) bool { return hasParent(name, gone) })
}

// hasParent reports whether one of the sorted paths is a parent of name.
func hasParent(name string, paths []string) bool {
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

// walk visits what a workspace may hold below root: folders before their contents, names in byte
// order, links not followed. Folders on which something is mounted are no part of it. It does
// without fs.WalkDir, which refuses names that are not UTF-8.
func walk(root *os.Root, visit func(name string, info fs.FileInfo) error) error {
	top, err := root.Stat(".")
	if err != nil {
		return err
	}
	w := walker{root: root, visit: visit, device: device(top)}
	return w.folder(".")
}

type walker struct {
	root   *os.Root
	visit  func(name string, info fs.FileInfo) error
	device uint64
	count  int
	names  int // bytes
}

func (w *walker) folder(folder string) error {
	names, err := w.list(folder)
	if err != nil {
		return err
	}
	for _, base := range names {
		name := path.Join(folder, base)
		if w.count++; w.count > maxFiles {
			return fmt.Errorf("%w: more than %d entries", ErrTooLarge, maxFiles)
		}
		if len(name) > maxName {
			return fmt.Errorf("%w: %.200s…: a path of %d bytes (limit %d)", ErrTooLarge, name, len(name), maxName)
		}
		if err := checkDepth(name); err != nil {
			return err
		}
		if w.names += len(name); w.names > maxNames {
			return fmt.Errorf("%w: the names exceed %d bytes in all", ErrTooLarge, maxNames)
		}
		if err := w.entry(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err // what is gone since its folder was listed was removed by a running process
		}
	}
	return nil
}

func (w *walker) list(folder string) ([]string, error) {
	dir, err := w.root.OpenFile(folder, os.O_RDONLY|openFlags, 0)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENXIO) {
		return nil, fs.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxFiles + 1)
	if errors.Is(err, syscall.ENOTDIR) {
		return nil, fs.ErrNotExist
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

func (w *walker) entry(name string) error {
	info, err := w.root.Lstat(name)
	if errors.Is(err, syscall.ENOTDIR) {
		return fs.ErrNotExist
	}
	if err != nil {
		return err
	}
	switch info.Mode().Type() {
	case 0, fs.ModeSymlink:
		return w.visit(name, info)
	case fs.ModeDir:
		if device(info) != w.device {
			return nil
		}
		if err := w.visit(name, info); err != nil {
			return err
		}
		return w.folder(name)
	}
	return nil
}

// modeOf keeps a mode's type and permissions; those of links mean nothing.
func modeOf(info fs.FileInfo) fs.FileMode {
	if info.Mode()&fs.ModeSymlink != 0 {
		return fs.ModeSymlink | 0o777
	}
	return info.Mode().Type() | info.Mode().Perm()
}

// look reads a path for its state.
func look(root *os.Root, name string, info fs.FileInfo) (state, error) {
	found := state{mode: modeOf(info), identity: identify(info), checked: time.Now()}
	switch {
	case info.IsDir():
		return found, nil
	case found.mode&fs.ModeSymlink != 0:
		link, err := readLink(root, name)
		found.link = link
		return found, err
	case info.Size() > maxBytes:
		return found, fmt.Errorf("%s: %w: %d bytes (limit %d)", name, ErrTooLarge, info.Size(), maxBytes)
	}
	file, err := openFile(root, name)
	if err != nil {
		return found, err
	}
	defer file.Close()
	hash := sha256.New()
	found.size, err = io.Copy(hash, io.LimitReader(file, info.Size()))
	hash.Sum(found.sum[:0])
	return found, err
}

func (s state) equal(other state) bool {
	return s.mode == other.mode && s.link == other.link && s.size == other.size && s.sum == other.sum
}

// unchanged proves by the kernel's own records, which a process cannot forge, that a file is as
// it was when it was read.
func (s state) unchanged(info fs.FileInfo) bool {
	now := identify(info)
	return now.known && now == s.identity && s.checked.Sub(now.changed()) > racy
}
