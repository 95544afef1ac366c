package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Bounds of an image's tree.
const (
	maxImageFiles = 4 << 20
	maxImageBytes = 64 << 30
	maxLinks      = 40 // on the way to one name
)

// How a layer says what it takes away of those below it: one name, or all that a folder has.
const (
	removal  = ".wh."
	emptying = ".wh..wh..opq"
	// bookkeeping begins other names that an engine's store once kept beside an image's.
	bookkeeping = ".wh..wh."
)

// UnpackImage writes the tar stream of a container's file system below root. Owners and device
// files are left out, as everything belongs to the sandbox's one user, who may read all of it;
// set-user-ID bits mean nothing there and are left out, too.
func UnpackImage(ctx context.Context, root *os.Root, from io.Reader) error {
	tree := NewImageTree(root)
	if err := tree.Unpack(ctx, from); err != nil {
		return err
	}
	return tree.Complete()
}

// ImageTree is the file system of an image that is unpacked layer by layer, the lowest first.
type ImageTree struct {
	root  *os.Root
	files int
	left  int64 // bytes

	seed maphash.Seed
	own  map[uint64]bool // the names of the layer that is unpacked now, by their hashes
	// at is where the folder `last` is, with links on its way followed.
	last, at string
}

// NewImageTree is an empty one.
func NewImageTree(root *os.Root) *ImageTree {
	return &ImageTree{root: root, left: maxImageBytes, seed: maphash.MakeSeed(), own: map[uint64]bool{}}
}

// Unpack lays the tar stream of a layer over those before it.
func (t *ImageTree) Unpack(ctx context.Context, layer io.Reader) error {
	t.own = map[uint64]bool{}
	for reader := tar.NewReader(layer); ; {
		header, err := reader.Next()
		if err == io.EOF {
			return nil
		}
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		if len(header.Name) > maxName || len(header.Linkname) > maxName {
			return fmt.Errorf("%w: a name of more than %d bytes", ErrTooLarge, maxName)
		}
		if t.files++; t.files > maxImageFiles {
			return fmt.Errorf("%w: more than %d files", ErrTooLarge, maxImageFiles)
		}
		if t.left -= header.Size; t.left < 0 {
			return fmt.Errorf("%w: more than %d GiB", ErrTooLarge, maxImageBytes>>30)
		}
		if name := strings.TrimPrefix(path.Clean("/"+header.Name), "/"); name != "" {
			if err := t.entry(name, header, reader); err != nil {
				return fmt.Errorf("%.200q: %w", name, err)
			}
		}
	}
}

func (t *ImageTree) entry(name string, header *tar.Header, content io.Reader) error {
	switch header.Typeflag {
	case tar.TypeDir, tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse, tar.TypeLink, tar.TypeSymlink:
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo, tar.TypeXGlobalHeader:
		return nil
	default:
		return fmt.Errorf("%w: an entry of type %q", ErrInvalid, header.Typeflag)
	}
	if strings.Contains("/"+name, "/"+bookkeeping) && path.Base(name) != emptying {
		return nil
	}
	parent, err := t.folderOf(name)
	if err != nil {
		return err
	}
	base := path.Base(name)
	if base == emptying {
		return t.empty(parent)
	}
	if gone, ok := strings.CutPrefix(base, removal); ok {
		if gone == "" || gone == "." || gone == ".." {
			return ErrInvalid
		}
		return t.remove(path.Join(parent, gone))
	}
	name = path.Join(parent, base)
	if err := t.replace(name, header.Typeflag == tar.TypeDir); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeDir:
		return folder(t.root, name)
	case tar.TypeSymlink:
		return t.root.Symlink(header.Linkname, name)
	case tar.TypeLink:
		target := strings.TrimPrefix(path.Clean("/"+header.Linkname), "/")
		from, err := t.follow(path.Dir(target))
		if err != nil {
			return err
		}
		return t.root.Link(path.Join(from, path.Base(target)), name)
	}
	mode := readableBy(header.FileInfo().Mode())
	file, err := t.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Chmod(mode), file.Close()) // whatever the umask is
}

// folderOf makes the folder of a name, and answers where it is.
func (t *ImageTree) folderOf(name string) (string, error) {
	dir := path.Dir(name)
	if dir == t.last && t.at != "" {
		return t.at, nil
	}
	at, err := t.follow(dir)
	if err != nil {
		return "", err
	}
	if info, err := t.root.Lstat(at); err != nil || !info.IsDir() {
		if err := t.replace(at, true); err != nil {
			return "", err
		}
		if err := folder(t.root, at); err != nil {
			return "", err
		}
	}
	t.last, t.at = dir, at
	return at, nil
}

// follow answers where a folder is for a process whose root is the image's: links on its
// way lead from that root.
func (t *ImageTree) follow(dir string) (string, error) {
	at, links := ".", 0
	for steps := strings.Split(dir, "/"); len(steps) > 0; {
		step := steps[0]
		steps = steps[1:]
		if step == ".." || step == "." || step == "" {
			if step == ".." {
				at = path.Dir(at)
			}
			continue
		}
		next := path.Join(at, step)
		if strings.Count(next, "/") >= maxDepth {
			return "", fmt.Errorf("%w: more than %d folders deep", ErrTooLarge, maxDepth)
		}
		target, err := t.root.Readlink(next)
		if err != nil { // no link, or not there
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("more than %d links lead to it", maxLinks)
		}
		if path.IsAbs(target) {
			at = "."
		}
		steps = append(strings.Split(target, "/"), steps...)
	}
	return at, nil
}

// replace makes room for an entry of this layer. A folder stays where a folder comes.
func (t *ImageTree) replace(name string, isFolder bool) error {
	t.own[maphash.String(t.seed, name)] = true
	info, err := t.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || isFolder && info.IsDir() {
		return err
	}
	t.last, t.at = "", "" // it may have led there
	return t.root.RemoveAll(name)
}

// remove takes away what lower layers have of a name.
func (t *ImageTree) remove(name string) error {
	if !t.own[maphash.String(t.seed, name)] {
		t.last, t.at = "", ""
		return t.root.RemoveAll(name)
	}
	if info, err := t.root.Lstat(name); err != nil || !info.IsDir() {
		return err
	}
	return t.empty(name)
}

// empty takes away what lower layers have below a folder.
func (t *ImageTree) empty(name string) error {
	once := maphash.String(t.seed, emptying+name) // no entry's name: it would be a removal
	if t.own[once] {
		return nil
	}
	t.own[once] = true
	opened, err := t.root.Open(name)
	if err != nil {
		return err
	}
	names, err := opened.Readdirnames(-1)
	if err := errors.Join(err, opened.Close()); err != nil {
		return err
	}
	for _, base := range names {
		if err := t.remove(path.Join(name, base)); err != nil {
			return err
		}
	}
	return nil
}

func folder(root *os.Root, name string) error {
	if name == "." {
		return nil
	}
	if err := root.MkdirAll(name, 0o755); err != nil {
		return err
	}
	return root.Chmod(name, 0o755)
}

// readableBy lets everyone read what its owner may run or read.
func readableBy(mode fs.FileMode) fs.FileMode {
	if mode&0o111 != 0 {
		return 0o755
	}
	return 0o644
}

// Complete makes what engines put into containers at their start: the name of this host, places to
// mount on, and these folders.
func (t *ImageTree) Complete(folders ...string) error {
	root := t.root
	for _, name := range append(folders, "etc", "var/tmp") {
		if _, err := t.folderOf(path.Join(name, "x")); err != nil {
			return err
		}
	}
	if err := root.Remove("etc/hosts"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	hosts, err := root.OpenFile("etc/hosts", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = hosts.WriteString("127.0.0.1 localhost\n::1 localhost\n")
	return errors.Join(err, hosts.Chmod(0o644), hosts.Close())
}
