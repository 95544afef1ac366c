package sandbox

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

// goModules is where modules of Go are inside.
const goModules = "/var/cache/go-modules"

// Bounds of a set of modules.
const (
	maxModules     = 2000
	maxModuleBytes = 4 << 30 // unpacked
	modulesTime    = 10 * time.Minute
)

// GoModules answers what shows modules of Go in a sandbox, read-only, so that builds find them
// there without a network. They come as an archive (see Pack) of a module proxy's files,
// path/@v/version.zip and so on, and are unpacked into cacheDir once by the archive's SHA-256
// digest. The go command that does it verifies nothing that the digest does not.
func GoModules(ctx context.Context, cacheDir, digest string, fetch Fetch) (Mount, map[string]string, error) {
	root, err := goRoot(ctx)
	var folder string
	if err == nil {
		folder, err = readyFolder(ctx, filepath.Join(cacheDir, "go-modules"), digest,
			func(ctx context.Context, half string) error {
				return unpackModules(ctx, root, half, digest, fetch)
			})
	}
	if err != nil {
		return Mount{}, nil, fmt.Errorf("modules of Go %.64s: %w", digest, err)
	}
	return Mount{Source: folder, Target: goModules}, map[string]string{"GOMODCACHE": goModules}, nil
}

// readyFolder has a folder filled by the digest of what comes into it, once, under a lock between
// processes. One that is there is whole.
func readyFolder(ctx context.Context, cacheDir, digest string,
	fill func(ctx context.Context, folder string) error) (string, error) {
	if sum, err := hex.DecodeString(digest); err != nil || len(sum) != sha256.Size {
		return "", fmt.Errorf("%w: want the SHA-256 of their archive", ErrInvalid)
	}
	cacheDir, err := filepath.Abs(cacheDir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(cacheDir, 0o755); err != nil {
		return "", err
	}
	place := filepath.Join(cacheDir, digest)
	if _, err := os.Stat(place); err == nil {
		return place, nil
	}
	lock, err := os.OpenFile(place+lockSuffix, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := flock(ctx, lock, unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("wait for another process that unpacks them: %w", err)
	}
	if _, err := os.Stat(place); err == nil {
		return place, nil
	}
	half := place + halfSuffix
	err = errors.Join(os.RemoveAll(half), os.MkdirAll(half, 0o755))
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, modulesTime)
		defer cancel()
		err = fill(ctx, half)
	}
	if err == nil {
		err = os.Rename(half, place)
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(half))
	}
	return place, nil
}

// unpackModules makes a folder the cache that the go command has of modules.
func unpackModules(ctx context.Context, root, folder, digest string, fetch Fetch) error {
	proxy := filepath.Join(folder, "cache", "download")
	if err := os.MkdirAll(proxy, 0o755); err != nil {
		return err
	}
	if err := unpackSet(ctx, proxy, digest, fetch); err != nil {
		return err
	}
	names, err := zippedModules(proxy)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "rondo-modules-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if len(names) > 0 {
		command := exec.CommandContext(ctx, filepath.Join(root, "bin", "go"),
			append([]string{"mod", "download", "--"}, names...)...)
		command.Dir = work
		command.Env = []string{"PATH=" + baseEnv["PATH"], "HOME=" + work, "GOROOT=" + root, "GOPATH=" + work,
			"GOCACHE=" + filepath.Join(work, "cache"), "GOMODCACHE=" + folder,
			"GOFLAGS=-modcacherw", "GOPROXY=off", "GOSUMDB=off", "GOTOOLCHAIN=local", "GOENV=off",
			"GOWORK=off", "GOVCS=*:off"}
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: go mod download: %w: %.2000s", ErrInvalid, err, out)
		}
	}
	// Another user looks into it from inside, and nothing inside can take the go command's locks.
	return filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		if entry.IsDir() {
			return os.Chmod(name, 0o755)
		}
		return os.Chmod(name, 0o644)
	})
}

// unpackSet unpacks the archive of a set, which must be what its digest says.
func unpackSet(ctx context.Context, folder, digest string, fetch Fetch) error {
	data, err := fetch(ctx)
	if err != nil {
		return err
	}
	defer data.Close()
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	sum := sha256.New()
	from := io.TeeReader(data, sum)
	if err := UnpackTo(root, from); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, from); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != digest {
		return fmt.Errorf("%w: their archive has another digest", ErrInvalid)
	}
	return nil
}

// zippedModules are the modules of which a proxy's folder has the files, as path@version.
func zippedModules(proxy string) (names []string, err error) {
	left := int64(maxModuleBytes)
	err = filepath.WalkDir(proxy, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".zip") {
			return err
		}
		inside, err := filepath.Rel(proxy, strings.TrimSuffix(name, ".zip"))
		if err != nil {
			return err
		}
		path, version, found := strings.Cut(inside, "/@v/")
		if path = unescaped(path); !found || strings.HasPrefix(path, "-") || strings.ContainsAny(version, "/@") {
			return fmt.Errorf("%w: %.200q is not the place of a module's version", ErrInvalid, inside)
		}
		files, err := zip.OpenReader(name)
		if err != nil {
			return fmt.Errorf("%w: %.200q: %w", ErrInvalid, inside, err)
		}
		defer files.Close()
		for _, file := range files.File { // the go command writes no more than is declared
			if size := file.UncompressedSize64; size > uint64(left) {
				return fmt.Errorf("%w: they are more than %d bytes", ErrInvalid, int64(maxModuleBytes))
			}
			left -= int64(file.UncompressedSize64)
		}
		if names = append(names, path+"@"+unescaped(version)); len(names) > maxModules {
			return fmt.Errorf("%w: more than %d modules", ErrInvalid, maxModules)
		}
		return nil
	})
	return names, err
}

// unescaped is a path as it is without a proxy's marks for capitals: !x is X.
func unescaped(path string) string {
	var plain strings.Builder
	capital := false
	for _, r := range path {
		switch {
		case r == '!':
			capital = true
			continue
		case capital:
			r, capital = unicode.ToUpper(r), false
		}
		plain.WriteRune(r)
	}
	return plain.String()
}
