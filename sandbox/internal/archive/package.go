package archive

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// packageBlock is what a file or a folder takes on a disk at least, in bytes.
const packageBlock = 4096

// Room is how many bytes on a disk may still be taken, with a block for each file and each folder:
// neither many nor large ones fill it.
type Room struct{ Left int64 }

func (r *Room) take(size int64) error {
	if size < 0 || size > r.Left-2*packageBlock {
		return fmt.Errorf("%w: its files and folders take more room than there is", ErrTooLarge)
	}
	r.Left -= packageBlock + (size+packageBlock-1)/packageBlock*packageBlock
	return nil
}

// UnpackPackage writes the files of a compressed tar of a package below root, without the one
// folder around them. Links, devices and empty folders are passed over, as npm does; names
// that lead anywhere else are refused. A file may replace another one of the archive. What it
// wrote before an error stays.
func UnpackPackage(root *os.Root, from io.Reader, room *Room) error {
	plain, err := gzip.NewReader(from)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	// Headers are bounded, too, where they are those of no file.
	source := &failingReader{from: io.LimitReader(plain, room.Left)}
	p := packageWriter{root: root, room: room, source: source, folders: map[string]bool{".": true}}
	for reader := tar.NewReader(source); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		if err := room.take(header.Size); err != nil { // of what is passed over, too: it is read
			return err
		}
		name, err := packageName(header.Name)
		if err != nil {
			return err
		}
		if name == "" || header.Typeflag != tar.TypeReg {
			continue
		}
		if err := p.file(name, header, reader); err != nil {
			return fmt.Errorf("%.200s: %w", name, err)
		}
	}
}

// packageName is a name without its first folder, "" for what lies beside or is that folder.
func packageName(name string) (string, error) {
	parts := strings.Split(strings.Trim(strings.TrimPrefix(name, "./"), "/"), "/")
	inside := path.Join(parts[1:]...)
	if inside == "" {
		return "", nil
	}
	for _, part := range parts {
		if part == ".." || strings.ContainsAny(part, "\\\x00") {
			return "", fmt.Errorf("%w: %.200q is not a path inside of the package", ErrInvalid, name)
		}
	}
	if err := checkName(inside); err != nil {
		return "", err
	}
	return inside, checkDepth(inside)
}

type packageWriter struct {
	root    *os.Root
	room    *Room
	source  *failingReader
	folders map[string]bool // that room was taken for
}

func (p packageWriter) file(name string, header *tar.Header, content io.Reader) error {
	for at := path.Dir(name); !p.folders[at]; at = path.Dir(at) {
		if err := p.room.take(0); err != nil {
			return err
		}
		p.folders[at] = true
	}
	mode := readableBy(header.FileInfo().Mode())
	err := p.root.MkdirAll(path.Dir(name), 0o755)
	var file *os.File
	if err == nil {
		file, err = p.root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	}
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR) ||
		errors.Is(err, syscall.ENAMETOOLONG) {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	if p.source.err != nil || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: it is damaged", ErrInvalid)
	}
	return errors.Join(err, file.Chmod(mode), file.Close())
}
