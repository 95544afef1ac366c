package ignore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxAbove bounds the search for the repository that a folder is in.
const maxAbove = 64

// ReadParents reads the rules that reach into a directory from outside: .git/info/exclude,
// and the ignore files of the repository's folders above it. The directory's own are the
// caller's to add, with Own.
//
// A rule above never excludes the directory itself: who names it wants it.
func ReadParents(dir string) (*Folder, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	root, gitDir, err := repository(dir)
	if err != nil {
		return nil, fmt.Errorf("find the repository of %s: %w", dir, err)
	}
	if gitDir == "" {
		return Root(nil, "")
	}
	exclude, err := read(filepath.Join(gitDir, "info", "exclude"))
	if err != nil {
		return nil, err
	}
	inside, err := filepath.Rel(root, dir)
	if err != nil {
		return nil, err
	}
	folders := strings.Split(filepath.ToSlash(inside), "/")
	if inside == "." {
		folders = nil
	}
	var above *Folder
	for i, at := 0, root; i <= len(folders); i++ {
		var files map[string]string
		if i < len(folders) { // not the directory itself
			if files, err = ignoreFiles(at); err != nil {
				return nil, err
			}
		}
		if i == 0 {
			above, err = Root(files, exclude)
		} else {
			above, err = above.Child(folders[i-1], files)
		}
		if err != nil {
			return nil, err
		}
		if i < len(folders) {
			at = filepath.Join(at, folders[i])
		}
	}
	return above, nil
}

// repository finds the root of the working tree that a directory is in, and the folder with its
// info/exclude; both are empty where there is none.
func repository(dir string) (root, gitDir string, err error) {
	for range maxAbove {
		name := filepath.Join(dir, ".git")
		info, err := os.Stat(name)
		switch {
		case err == nil && info.IsDir():
			return dir, name, nil
		case err == nil:
			gitDir, err := linked(name)
			return dir, gitDir, err
		case !errors.Is(err, fs.ErrNotExist):
			return "", "", err
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", "", nil
		}
		dir = parent
	}
	return "", "", nil
}

// linked follows the .git file of a worktree or a submodule to the folder that all worktrees share.
func linked(name string) (string, error) {
	text, err := read(name)
	if err != nil {
		return "", err
	}
	dir, ok := strings.CutPrefix(strings.TrimSpace(text), "gitdir:")
	if !ok {
		return "", fmt.Errorf("%s does not name a gitdir", name)
	}
	dir = relativeTo(filepath.Dir(name), strings.TrimSpace(dir))
	common, err := read(filepath.Join(dir, "commondir"))
	if err != nil || common == "" {
		return dir, err
	}
	return relativeTo(dir, strings.TrimSpace(common)), nil
}

func relativeTo(dir, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, name)
}

func ignoreFiles(dir string) (map[string]string, error) {
	files := map[string]string{}
	for _, name := range []string{GitFile, CursorFile, RondoFile} {
		full := filepath.Join(dir, name)
		if info, err := os.Lstat(full); err != nil || !info.Mode().IsRegular() {
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			continue // Git does not follow a link here either
		}
		text, err := read(full)
		if err != nil {
			return nil, err
		}
		files[name] = text
	}
	return files, nil
}

// read reads a small file; one that is missing is empty. What cannot be read is an error, as rules
// that are not seen would put into the index what its owner keeps out of it.
func read(name string) (string, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return "", err
	}
	if len(text) > MaxFile {
		return "", fmt.Errorf("%s: larger than %d bytes", name, MaxFile)
	}
	return string(text), nil
}
