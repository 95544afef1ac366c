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
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// checkOut writes a repository's files at a commit into a new folder. A folder that is no Git repository is taken as it is.
func checkOut(ctx context.Context, source, commit, into string) error {
	if _, err := os.Stat(filepath.Join(source, ".git")); errors.Is(err, fs.ErrNotExist) && !bare(source) {
		return os.CopyFS(into, os.DirFS(source))
	}
	list, err := git(ctx, source, nil, "ls-tree", "-r", "-z", commit)
	if err != nil {
		return err
	}
	entries, err := parseTree(list)
	if err != nil {
		return err
	}
	var wanted bytes.Buffer
	for _, e := range entries {
		fmt.Fprintln(&wanted, e.id)
	}
	// Objects are read as they are: a checkout or an archive would run the filters and leave out what the repository's settings say.
	blobs, err := git(ctx, source, &wanted, "cat-file", "--batch")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(into)
	if err != nil {
		return err
	}
	defer root.Close()
	reader := bufio.NewReader(bytes.NewReader(blobs))
	for _, e := range entries {
		data, err := nextBlob(reader)
		if err == nil {
			err = e.write(root, data)
		}
		if err != nil {
			return fmt.Errorf("%s at %s: %w", e.name, commit, err)
		}
	}
	return nil
}

func bare(source string) bool {
	_, err := os.Stat(filepath.Join(source, "HEAD"))
	objects, missing := os.Stat(filepath.Join(source, "objects"))
	return err == nil && missing == nil && objects.IsDir()
}

// git runs Git in a repository, without anything of its settings that would run programs.
func git(ctx context.Context, dir string, stdin io.Reader, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", dir, "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"}, args...)...)
	cmd.Stdin = stdin
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s in %s: %w: %s", args[0], dir, err, strings.TrimSpace(complaint.String()))
	}
	return out, nil
}

type treeEntry struct{ mode, id, name string }

// parseTree reads "MODE TYPE ID\tNAME" entries that end with a zero byte. Submodules are left out.
func parseTree(list []byte) (entries []treeEntry, err error) {
	for line := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		facts, name, found := strings.Cut(line, "\t")
		fields := strings.Fields(facts)
		if !found || len(fields) != 3 {
			return nil, fmt.Errorf("git ls-tree: %.100q is no entry", line)
		}
		if fields[1] == "blob" {
			entries = append(entries, treeEntry{fields[0], fields[2], name})
		}
	}
	return entries, nil
}

// nextBlob reads "ID blob SIZE\n", the content and a line's end.
func nextBlob(r *bufio.Reader) ([]byte, error) {
	header, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(header)
	if len(fields) != 3 || fields[1] != "blob" {
		return nil, fmt.Errorf("git cat-file: %.100q", header)
	}
	size, err := strconv.Atoi(fields[2])
	if err != nil || size < 0 || size > maxFile {
		return nil, fmt.Errorf("%s bytes, the limit is %d", fields[2], maxFile)
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
