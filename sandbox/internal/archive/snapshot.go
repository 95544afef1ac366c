package archive

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"
)

// Pack writes the whole of fsys as a snapshot: entries sorted by path, constant times, owner 0, and
// permissions reduced to 0755 (executable, or starting with "#!", which file systems without modes
// such as embed.FS cannot say) and 0644. It refuses devices, sockets, pipes, links that leave the
// tree, and more than MaxFiles entries or MaxBytes of content.
func Pack(fsys fs.FS) ([]byte, error) {
	blocks := Blocks{Limit: MaxArchive}
	if err := PackTo(&blocks, fsys); err != nil {
		return nil, err
	}
	return bytes.Join(blocks.Pieces, nil), nil
}

// PackTo is Pack of a tree whose archive need not fit into memory. After an
// error what it wrote is void.
func PackTo(to io.Writer, fsys fs.FS) error {
	out, err := newWriter(to)
	if err != nil {
		return err
	}
	err = fs.WalkDir(fsys, ".", func(name string, found fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		return packOne(out, fsys, name, found)
	})
	if err = errors.Join(err, out.finish()); err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	return nil
}

func packOne(out *writer, fsys fs.FS, name string, found fs.DirEntry) error {
	if err := checkName(name); err != nil {
		return err
	}
	info, err := found.Info()
	if err != nil {
		return err
	}
	switch info.Mode().Type() {
	case fs.ModeDir:
		return out.add(entry{name: name, mode: fs.ModeDir | 0o755}, nil)
	case fs.ModeSymlink:
		link, err := fs.ReadLink(fsys, name)
		if err == nil && escapes(name, link) {
			err = fmt.Errorf("%w: %s: link to %q leaves the tree", ErrInvalid, name, link)
		}
		return errors.Join(err, out.add(entry{name: name, mode: fs.ModeSymlink | 0o777, link: link}, nil))
	case 0:
		return packFile(out, fsys, name, info)
	}
	return fmt.Errorf("%w: %s: a %v is neither a file, a folder nor a symbolic link", ErrInvalid,
		name, info.Mode().Type())
}

func packFile(out *writer, fsys fs.FS, name string, info fs.FileInfo) error {
	file, err := fsys.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	content := bufio.NewReader(file)
	e := entry{name: name, size: info.Size(), mode: 0o644}
	if start, _ := content.Peek(2); info.Mode()&0o111 != 0 || string(start) == "#!" {
		e.mode = 0o755
	}
	return out.add(e, content)
}

// Unpack writes a snapshot below root. Links that leave the tree and deletions are refused; what it
// wrote before an error stays.
func Unpack(root *os.Root, data io.Reader) error {
	w := treeWriter{root: root, time: snapshotTime}
	err := read(data, func(e entry, content io.Reader) error {
		if err := checkEntry(e); err != nil {
			return err
		}
		return w.put(e, content)
	})
	return errors.Join(err, w.finish())
}

// Check reports what keeps a snapshot of somebody unknown from being unpacked: whatever Unpack
// would meet, a path that it names twice, and more than most bytes of content.
func Check(data io.Reader, most int64) error {
	modes := map[string]fs.FileMode{".": fs.ModeDir}
	var sum int64
	return read(data, func(e entry, _ io.Reader) error {
		if err := checkEntry(e); err != nil {
			return err
		}
		if sum += e.size; sum > most {
			return fmt.Errorf("%.200s: %w: contents exceed %d bytes in all", e.name, ErrTooLarge, most)
		}
		if _, twice := modes[e.name]; twice {
			return fmt.Errorf("%w: %.200s is there twice, or below itself", ErrInvalid, e.name)
		}
		modes[e.name] = e.mode
		for parent := path.Dir(e.name); ; parent = path.Dir(parent) {
			mode, known := modes[parent]
			if known && !mode.IsDir() {
				return fmt.Errorf("%w: %.200s is below a file", ErrInvalid, e.name)
			}
			if known {
				return nil
			}
			modes[parent] = fs.ModeDir
		}
	})
}

// checkEntry refuses what no snapshot holds.
func checkEntry(e entry) error {
	if e.deleted {
		return fmt.Errorf("%w: %s: a snapshot cannot hold a deletion", ErrInvalid, e.name)
	}
	if e.link != "" && escapes(e.name, e.link) {
		return fmt.Errorf("%w: %s: link to %q leaves the tree", ErrInvalid, e.name, e.link)
	}
	return nil
}

// Apply writes a change over the tree that it was taken from. Links may point anywhere: they are
// only ever followed inside a sandbox.
func Apply(root *os.Root, data io.Reader) error {
	w := treeWriter{root: root, time: changeTime}
	err := read(data, func(e entry, content io.Reader) error {
		if e.deleted {
			return w.delete(e.name)
		}
		return w.put(e, content)
	})
	return errors.Join(err, w.finish())
}

// treeWriter writes entries below a root and sets the modes and times of folders last, so that a
// read-only folder can still be filled.
type treeWriter struct {
	root    *os.Root
	time    time.Time
	folders []entry
	known   map[string]bool // are folders; nobody else writes to the tree
}

func (w *treeWriter) put(e entry, content io.Reader) error {
	if err := w.parents(e.name); err != nil {
		return err
	}
	if err := w.clear(e); err != nil {
		return err
	}
	switch {
	case e.mode.IsDir():
		w.folders = append(w.folders, e)
		if err := w.root.Mkdir(e.name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	case e.link != "":
		return w.root.Symlink(e.link, e.name)
	}
	return w.file(e, content)
}

func (w *treeWriter) file(e entry, content io.Reader) error {
	file, err := w.root.OpenFile(e.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyN(file, content, e.size)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: %s is cut short", ErrInvalid, e.name)
	}
	if err := errors.Join(err, file.Chmod(e.mode.Perm()), file.Close()); err != nil {
		return err
	}
	return w.root.Chtimes(e.name, w.time, w.time)
}

// parents makes the folders above name. A link on the way is refused: an archive names what it
// writes by its real path.
func (w *treeWriter) parents(name string) error {
	parent := path.Dir(name)
	if parent == "." || w.known[parent] {
		return nil
	}
	if err := w.parents(parent); err != nil {
		return err
	}
	info, err := w.root.Lstat(parent)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = w.root.Mkdir(parent, 0o755)
	case err == nil && !info.IsDir():
		err = fmt.Errorf("%w: %s: %s is not a folder", ErrInvalid, name, parent)
	}
	if err == nil {
		if w.known == nil {
			w.known = map[string]bool{}
		}
		w.known[parent] = true
	}
	return err
}

// remove takes a path away with all below it.
func (w *treeWriter) remove(name string) error {
	w.known = nil
	return w.root.RemoveAll(name)
}

// clear removes what stands where e goes, unless both are folders.
func (w *treeWriter) clear(e entry) error {
	info, err := w.root.Lstat(e.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() && e.mode.IsDir() {
		return nil
	}
	if !info.IsDir() {
		return w.root.Remove(e.name)
	}
	return w.remove(e.name)
}

// delete removes a path; one that is not there, or is below a link, is nothing to remove.
func (w *treeWriter) delete(name string) error {
	for parent := path.Dir(name); parent != "."; parent = path.Dir(parent) {
		if info, err := w.root.Lstat(parent); err != nil || !info.IsDir() {
			return nil
		}
	}
	return w.remove(name)
}

func (w *treeWriter) finish() error {
	var failed error
	for i := len(w.folders) - 1; i >= 0; i-- {
		folder := w.folders[i]
		info, err := w.root.Lstat(folder.name)
		if err != nil || !info.IsDir() {
			continue // a later entry of the same name replaced it
		}
		failed = errors.Join(failed, w.root.Chmod(folder.name, folder.mode.Perm()),
			w.root.Chtimes(folder.name, w.time, w.time))
	}
	return failed
}
