package archive

import (
	"archive/tar"
	"errors"
	"fmt"
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
)

// UnpackImage writes the tar stream of a container's file system below root. Owners and device files are left out, as everything belongs
// to the sandbox's one user, who may read all of it; set-user-ID bits mean nothing there and are left out, too.
func UnpackImage(root *os.Root, from io.Reader) error {
	reader, files, left := tar.NewReader(from), 0, int64(maxImageBytes)
	for {
		header, err := reader.Next()
		if err == io.EOF {
			return completeImage(root)
		}
		if err != nil {
			return err
		}
		if files++; files > maxImageFiles {
			return fmt.Errorf("%w: more than %d files", ErrTooLarge, maxImageFiles)
		}
		if left -= header.Size; left < 0 {
			return fmt.Errorf("%w: more than %d GiB", ErrTooLarge, maxImageBytes>>30)
		}
		name := strings.TrimPrefix(path.Clean("/"+header.Name), "/")
		if name == "" {
			continue
		}
		if err := unpackImageEntry(root, name, header, reader); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
}

func unpackImageEntry(root *os.Root, name string, header *tar.Header, content io.Reader) error {
	switch header.Typeflag {
	case tar.TypeDir:
		return folder(root, name)
	case tar.TypeReg, tar.TypeLink, tar.TypeSymlink:
	default:
		return nil // devices, pipes
	}
	if err := folder(root, path.Dir(name)); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeSymlink:
		return root.Symlink(header.Linkname, name)
	case tar.TypeLink:
		return root.Link(strings.TrimPrefix(path.Clean("/"+header.Linkname), "/"), name)
	}
	mode := readableBy(header.FileInfo().Mode())
	file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Chmod(mode), file.Close()) // whatever the umask is
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

// completeImage makes what engines put into containers at their start: the name of this host, and places to mount on.
func completeImage(root *os.Root) error {
	for _, name := range []string{"etc", "var/tmp"} {
		if err := folder(root, name); err != nil {
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
