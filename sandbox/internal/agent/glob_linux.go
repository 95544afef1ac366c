package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// finding is one walk for files by name.
type finding struct {
	root     string
	pattern  *regexp.Regexp
	hidden   bool // the pattern names hidden files
	packages bool // packagesFolder is looked into
	deadline time.Time
	files    int
	found    []foundFile
	short    bool // the walk ended early
}

type foundFile struct {
	name    string // relative to the root
	changed int64
}

// glob answers the files below a folder whose path matches at any depth, newest first,
// then by path, each ended by a zero byte. The total is larger than what is answered where
// there are, or may be, more.
func glob(root string, query wire.Grep) (data []byte, total int64, err error) {
	pattern := query.Glob
	if !strings.HasPrefix(pattern, "**/") {
		pattern = "**/" + strings.TrimPrefix(pattern, "/")
	}
	f := &finding{
		root: root, hidden: strings.Contains(pattern, "/."), packages: hasPackages(root, pattern),
		deadline: time.Now().Add(time.Duration(query.DeadlineSeconds) * time.Second),
	}
	if f.pattern, err = compileGlob(pattern); err != nil {
		return nil, 0, err
	}
	top, err := openPlain(root, unix.O_PATH, 0)
	if err != nil {
		return nil, 0, err
	}
	top.Close()
	if err := filepath.WalkDir(root, f.visit); err != nil && !errors.Is(err, errEnough) {
		return nil, 0, err
	}
	slices.SortFunc(f.found, func(a, b foundFile) int {
		return cmp.Or(cmp.Compare(b.changed, a.changed), strings.Compare(a.name, b.name))
	})
	total = int64(len(f.found))
	if f.short {
		total++
	}
	for _, file := range f.found[:min(len(f.found), query.HeadLimit)] {
		if len(data)+len(file.name)+1 > query.MaxBytes {
			break
		}
		data = append(append(data, file.name...), 0)
	}
	return data, total, nil
}

func (f *finding) visit(name string, found fs.DirEntry, err error) error {
	if name == f.root {
		if err == nil && !found.IsDir() {
			err = &fs.PathError{Op: "list", Path: name, Err: unix.ENOTDIR}
		}
		return err
	}
	if err != nil {
		return nil // not readable, or gone: as if it were not there
	}
	hidden := strings.HasPrefix(found.Name(), ".") && (!f.hidden || found.Name() == ".git")
	if hidden || name == procFolder || found.Name() == packagesFolder && !f.packages {
		if found.IsDir() {
			return fs.SkipDir
		}
		return nil
	}
	if f.files++; f.files > maxGrepFiles || time.Now().After(f.deadline) {
		f.short = true
		return errEnough
	}
	relative := strings.TrimPrefix(strings.TrimPrefix(name, f.root), "/")
	if !found.Type().IsRegular() || !f.pattern.MatchString(relative) {
		return nil
	}
	info, err := found.Info()
	if err == nil {
		f.found = append(f.found, foundFile{relative, info.ModTime().UnixNano()})
	}
	return nil
}

// remove unlinks one file; a folder is refused by the kernel.
func remove(path string) error {
	folder, err := openPlain(filepath.Dir(path), unix.O_PATH, 0)
	if err != nil {
		return fmt.Errorf("remove: %w", err)
	}
	folder.Close()
	if err := unix.Unlink(path); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}
