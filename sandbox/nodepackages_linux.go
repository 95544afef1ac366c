package sandbox

import (
	"cmp"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/rondo-rl/rondo/sandbox/internal/archive"
)

// nodeCaches are folders of node_modules in which test programs and their compilers keep what they
// make: each sandbox has its own.
var nodeCaches = []string{".cache", ".vite", ".vite-temp"}

// NodePackages answers what shows a set of npm's packages as node_modules of a workspace, read-only
// but for nodeCaches. The set comes as an archive (see Pack) of a list and of the packages'
// archives, and is unpacked into cacheDir once by the archive's SHA-256 digest. Nothing of it runs.
// ErrPackages says that it is no such set.
func NodePackages(ctx context.Context, cacheDir, digest, workdir string, fetch Fetch) ([]Mount, error) {
	folder, err := readyFolder(ctx, filepath.Join(cacheDir, "node-packages"), digest,
		func(ctx context.Context, folder string) error {
			set := filepath.Join(folder, "set")
			if err := os.Mkdir(set, 0o755); err != nil {
				return err
			}
			if err := unpackSet(ctx, set, digest, fetch); err != nil {
				return err
			}
			return cmp.Or(layOut(ctx, set, folder), os.RemoveAll(set))
		})
	if err != nil {
		return nil, fmt.Errorf("packages of npm %.64s: %w", digest, err)
	}
	all := Mount{Source: filepath.Join(folder, nodeModules),
		Target: path.Join(cmp.Or(workdir, DefaultWorkdir), nodeModules)}
	mounts := []Mount{all}
	for _, name := range nodeCaches {
		cache := Mount{Source: filepath.Join(all.Source, name), Target: path.Join(all.Target, name), Overlay: true}
		if err := os.MkdirAll(cache.Source, 0o755); err != nil {
			return nil, fmt.Errorf("packages of npm %.64s: %w", digest, err)
		}
		mounts = append(mounts, cache)
	}
	return mounts, nil
}

const nodeModules = "node_modules"

// layOut unpacks the packages of a set below a folder.
func layOut(ctx context.Context, set, folder string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	packages, err := ReadNodePackages(os.DirFS(set))
	if err != nil {
		return err
	}
	if err := root.Mkdir(nodeModules, 0o755); err != nil {
		return err
	}
	room, whole := &archive.Room{Left: MaxNodeBytes}, map[string]bool{}
	for _, p := range packages {
		err := context.Cause(ctx)
		if name := filepath.Join(set, p.SHA512+".tgz"); err == nil {
			if !whole[p.SHA512] {
				err = p.verify(name)
			}
			whole[p.SHA512] = true
			err = cmp.Or(err, p.unpack(root, name, room))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.Path, ofPackages(err))
		}
	}
	for _, p := range packages {
		if err := p.link(root); err != nil {
			return fmt.Errorf("%s: %w", p.Path, ofPackages(err))
		}
	}
	return nil
}

// ofPackages says of an error that is the packages' own doing that it is.
func ofPackages(err error) error {
	for _, own := range []error{archive.ErrInvalid, archive.ErrTooLarge, syscall.ENOTDIR, syscall.EISDIR,
		syscall.ENAMETOOLONG, fs.ErrExist} {
		if errors.Is(err, own) {
			return fmt.Errorf("%w: %w", ErrPackages, err)
		}
	}
	return err
}

// verify reports whether a package's archive is what its digest says.
func (p NodePackage) verify(name string) error {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: its archive is not among the files", archive.ErrInvalid)
	}
	if err != nil {
		return err
	}
	defer file.Close()
	sum := sha512.New()
	if _, err := io.Copy(sum, file); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != p.SHA512 {
		return fmt.Errorf("%w: its archive has another digest", archive.ErrInvalid)
	}
	return nil
}

// unpack unpacks a package's archive.
func (p NodePackage) unpack(root *os.Root, name string, room *archive.Room) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := root.Lstat(p.Path); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: the package that it lies in has it already", archive.ErrInvalid)
	}
	if err := root.MkdirAll(p.Path, 0o755); err != nil {
		return err
	}
	inside, err := root.OpenRoot(p.Path)
	if err != nil {
		return err
	}
	defer inside.Close()
	return archive.UnpackPackage(inside, file, room)
}

// link makes a package's programs ready to be started. Of programs of one name the first package
// has it; a program whose file is not there is left out.
func (p NodePackage) link(root *os.Root) error {
	modules := path.Dir(p.Path)
	if path.Base(modules) != nodeModules {
		modules = path.Dir(modules) // of a scope
	}
	for _, name := range slices.Sorted(maps.Keys(p.Programs)) {
		file, bin := path.Join(p.Path, p.Programs[name]), path.Join(modules, ".bin")
		if info, err := root.Lstat(file); err != nil || !info.Mode().IsRegular() {
			continue
		}
		if err := errors.Join(root.MkdirAll(bin, 0o755), root.Chmod(file, 0o755)); err != nil {
			return err
		}
		to, err := filepath.Rel(bin, file)
		if err == nil {
			err = root.Symlink(to, path.Join(bin, name))
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}
