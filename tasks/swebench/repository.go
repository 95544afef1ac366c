package swebench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a repository's tree at a commit.
const (
	maxList  = 64 << 20 // bytes of the list of its files
	maxBytes = 4 << 30  // of its files
)

// checkOut writes a repository's files at a commit into a new folder. A folder that is no Git
// repository is taken as it is.
func checkOut(ctx context.Context, source, commit, into string) error {
	gitDir, err := gitFolder(source)
	if err != nil {
		return err
	}
	if gitDir == "" {
		return os.CopyFS(into, os.DirFS(source))
	}
	objects, err := borrow(gitDir, commit)
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	defer objects.Close()
	var entries []treeEntry
	err = objects.Git(ctx, nil, func(out io.Reader) error {
		list, err := io.ReadAll(io.LimitReader(out, maxList+1))
		if err == nil && len(list) > maxList {
			err = fmt.Errorf("the list of files has more than %d bytes", maxList)
		}
		if err == nil {
			entries, err = parseTree(list)
		}
		return err
	}, "ls-tree", "-r", "-z", "--full-tree", commit)
	if err != nil {
		return fmt.Errorf("%s at %s: %w", source, commit, err)
	}
	var wanted bytes.Buffer
	for _, e := range entries {
		fmt.Fprintln(&wanted, e.id)
	}
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(into)
	if err != nil {
		return err
	}
	defer root.Close()
	// Objects are read as they are: a checkout or an archive would run the filters and leave out
	// what the repository's attributes say.
	return objects.Git(ctx, &wanted, func(out io.Reader) error {
		reader, left := bufio.NewReader(out), int64(maxBytes)
		for _, e := range entries {
			data, err := nextBlob(reader)
			if left -= int64(len(data)); err == nil && left < 0 {
				err = fmt.Errorf("the files have more than %d bytes", int64(maxBytes))
			}
			if err == nil {
				err = e.write(root, data)
			}
			if err != nil {
				return fmt.Errorf("%q at %s: %w", e.name, commit, err)
			}
		}
		return nil
	}, "cat-file", "--batch")
}

// ErrFileSize says that files of a repository have more bytes than are read.
var ErrFileSize = errors.New("too many bytes")

// Files reads files of a commit that have at most so many bytes together; names are plain ones, of
// a line each, of files that it has.
func (b *Objects) Files(ctx context.Context, commit string, names []string, most int) (map[string][]byte, error) {
	var wanted bytes.Buffer
	for _, name := range names {
		fmt.Fprintf(&wanted, "%s:%s\n", commit, name)
	}
	files := map[string][]byte{}
	err := b.Git(ctx, &wanted, func(out io.Reader) error {
		reader := bufio.NewReader(out)
		for _, name := range names {
			data, err := nextBlob(reader)
			if most -= len(data); err == nil && most < 0 {
				err = ErrFileSize
			}
			if err != nil {
				return fmt.Errorf("%q at %s: %w", name, commit, err)
			}
			files[name] = data
		}
		return nil
	}, "cat-file", "--batch")
	return files, err
}

// gitFolder finds the folder of a repository's objects and refs, "" where the source is
// no repository. One that is elsewhere is refused: whoever made the source could name
// any folder of this machine.
func gitFolder(source string) (string, error) {
	dir := filepath.Join(source, ".git")
	info, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && bare(source):
		dir = source
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case !info.IsDir():
		return "", fmt.Errorf("%s leads to a repository elsewhere: name that one", dir)
	}
	if _, err := os.Lstat(filepath.Join(dir, "commondir")); !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s is a working tree of another repository: name that one", dir)
	}
	return dir, nil
}

func bare(source string) bool {
	_, err := os.Lstat(filepath.Join(source, "HEAD"))
	_, missing := os.Lstat(filepath.Join(source, "objects"))
	return err == nil && missing == nil
}

type treeEntry struct{ mode, id, name string }

// parseTree reads "MODE TYPE ID\tNAME" entries that end with a zero byte. Submodules are left out.
func parseTree(list []byte) (entries []treeEntry, err error) {
	for line := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		facts, name, found := strings.Cut(line, "\t")
		fields := strings.Fields(facts)
		if !found || len(fields) != 3 {
			return nil, fmt.Errorf("git ls-tree: %.100q is not an entry", line)
		}
		if fields[1] != "blob" {
			continue
		}
		if !plainName(name) {
			return nil, fmt.Errorf("%.100q is not the name of a file", name)
		}
		entries = append(entries, treeEntry{fields[0], fields[2], name})
	}
	return entries, nil
}

// plainName refuses what Git itself never puts into a tree: a way out of it,
// and files of a repository.
func plainName(name string) bool {
	return filepath.IsLocal(name) && !slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool {
		return part == "" || part == "." || part == ".." || strings.EqualFold(part, ".git")
	})
}

// nextBlob reads "ID blob SIZE\n", the content and a line's end.
func nextBlob(r *bufio.Reader) ([]byte, error) {
	header, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(header)
	if len(fields) == 2 && fields[1] == "missing" {
		return nil, errors.New("its content is not in the repository, and nothing is fetched: `git fetch --refetch --no-filter` completes a partial clone")
	}
	if len(fields) != 3 || fields[1] != "blob" {
		return nil, fmt.Errorf("git cat-file: %.100q", header)
	}
	size, err := strconv.Atoi(fields[2])
	if err != nil || size < 0 || size > maxFile {
		return nil, fmt.Errorf("%w: %s, the limit is %d", ErrFileSize, fields[2], maxFile)
	}
	data := make([]byte, size+1)
	_, err = io.ReadFull(r, data)
	return data[:size], err
}

func (e treeEntry) write(root *os.Root, data []byte) error {
	if err := root.MkdirAll(filepath.Dir(e.name), 0o755); err != nil {
		return err
	}
	switch e.mode {
	case "120000":
		return root.Symlink(string(data), e.name)
	case "100755":
		return root.WriteFile(e.name, data, 0o755)
	}
	return root.WriteFile(e.name, data, 0o644)
}
