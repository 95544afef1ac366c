package swebench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Objects is a bare repository of our own over the objects of another one. Git never sees the other
// one's settings, hooks, refs and attributes: they are a program's text for whoever runs Git there.
type Objects struct{ dir string }

// Bounds of reading a repository: its objects are whatever somebody has written there.
const (
	maxObjects   = 1 << 20 // files of them; a packed repository has a few
	gitTime      = 10 * time.Minute
	maxAllocated = "512m" // by Git, at once
	maxComplaint = 2000   // bytes of what Git says is wrong
)

// ownConfig are all settings that Git is given. What only makes reading faster is left unread, and
// no file is loaded whole that is larger than any that is taken.
const ownConfig = `[core]
	repositoryformatversion = %d
	bare = true
	commitGraph = false
	multiPackIndex = false
	bigFileThreshold = 16m
	packedGitLimit = 256m
	deltaBaseCacheLimit = 64m
[protocol]
	allow = never
[pack]
	threads = 1
`

// Open opens a Git repository at the commit that is checked out.
func Open(source string) (objects *Objects, commit string, err error) {
	gitDir, err := gitFolder(source)
	switch {
	case err != nil:
		return nil, "", err
	case gitDir == "":
		return nil, "", fmt.Errorf("%s is no Git repository", source)
	}
	if commit, err = checkedOut(gitDir); err == nil {
		objects, err = borrow(gitDir, commit)
	}
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", source, err)
	}
	return objects, commit, nil
}

// Bounds of reading what is checked out, in bytes.
const (
	maxRef    = 4 << 10
	maxPacked = 64 << 20
)

var fullID = regexp.MustCompile(`^(?:[0-9a-f]{40}|[0-9a-f]{64})$`)

// checkedOut reads which commit is checked out, from files of the repository's own folder alone.
func checkedOut(gitDir string) (string, error) {
	root, err := os.OpenRoot(gitDir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	if _, err := root.Lstat("shallow"); err == nil {
		return "", errors.New("a shallow clone lacks commits: `git fetch --unshallow` completes it")
	}
	text, err := readSmall(root, "HEAD", maxRef)
	if err != nil {
		return "", err
	}
	name, symbolic := strings.CutPrefix(strings.TrimSpace(text), "ref: ")
	if !symbolic {
		return checkID(name, "HEAD")
	}
	if !strings.HasPrefix(name, "refs/") || !filepath.IsLocal(name) {
		return "", fmt.Errorf("HEAD: %.100q is not the name of a branch", name)
	}
	if text, err = readSmall(root, name, maxRef); err == nil {
		return checkID(strings.TrimSpace(text), name)
	}
	packed, missing := readSmall(root, "packed-refs", maxPacked)
	for line := range strings.Lines(packed) {
		if id, found := strings.CutSuffix(strings.TrimRight(line, "\r\n"), " "+name); found {
			return checkID(id, "packed-refs")
		}
	}
	if missing != nil && !errors.Is(missing, fs.ErrNotExist) {
		return "", missing
	}
	return "", fmt.Errorf("%s: is neither a file nor in packed-refs: check out a branch that has a commit", name)
}

func checkID(id, where string) (string, error) {
	if !fullID.MatchString(id) {
		return "", fmt.Errorf("%s: %.100q is not a commit's hexadecimal digits", where, id)
	}
	return id, nil
}

// readSmall reads a file that must be one, so that no pipe is waited for.
func readSmall(root *os.Root, name string, most int64) (string, error) {
	info, err := root.Lstat(name)
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular() || info.Size() > most:
		return "", fmt.Errorf("%s: want a file of at most %d bytes", name, most)
	}
	data, err := root.ReadFile(name)
	return string(data), err
}

// borrow makes the repository for a commit, whose digits tell how objects are named.
func borrow(gitDir, commit string) (*Objects, error) {
	objects, err := filepath.Abs(filepath.Join(gitDir, "objects"))
	if err != nil {
		return nil, err
	}
	if strings.ContainsAny(objects, "\n\r") {
		return nil, errors.New("the path of a repository must be one line")
	}
	if err := checkObjects(objects); err != nil {
		return nil, err
	}
	config := fmt.Sprintf(ownConfig, 0)
	if len(strings.TrimSuffix(commit, "^")) == 64 {
		config = fmt.Sprintf(ownConfig, 1) + "[extensions]\n\tobjectFormat = sha256\n"
	}
	dir, err := os.MkdirTemp("", "rondo-import-")
	if err != nil {
		return nil, err
	}
	if err := makeBare(dir, map[string]string{"config": config,
		"objects/info/alternates": objects + "\n"}); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &Objects{dir}, nil
}

// anyName lets a repository have names of files that other systems take for .git.
const anyName = "[core]\n\tprotectNTFS = false\n\tprotectHFS = false\n"

// Create makes an empty bare repository in a new folder. Close it, which removes the folder.
func Create(dir string) (*Objects, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, "objects"), 0o700); err != nil {
		return nil, err
	}
	return &Objects{dir}, makeBare(dir, map[string]string{"config": fmt.Sprintf(ownConfig, 0) + anyName})
}

// makeBare writes a bare repository's files, with those given by name.
func makeBare(dir string, files map[string]string) error {
	files["HEAD"] = "ref: refs/heads/none\n"
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700),
			os.WriteFile(name, []byte(text), 0o600)); err != nil {
			return err
		}
	}
	return os.MkdirAll(filepath.Join(dir, "refs"), 0o700)
}

// Dir is where the repository is.
func (b *Objects) Dir() string { return b.dir }

// Close removes it.
func (b *Objects) Close() { os.RemoveAll(b.dir) }

// checkObjects checks that a repository's objects lie in its own folder, as files: links and
// alternates would bring objects of another repository of this machine into the task, and a
// pipe would be waited for.
func checkObjects(objects string) error {
	count := 0
	return filepath.WalkDir(objects, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(objects, path)
		switch count++; {
		case count > maxObjects:
			return fmt.Errorf("objects: more than %d files: `git gc` packs them", maxObjects)
		case !d.IsDir() && !d.Type().IsRegular() || path == objects && !d.IsDir():
			return fmt.Errorf("objects/%s is neither a file nor a folder: only objects of the repository itself are read", name)
		case name == filepath.Join("info", "alternates") || name == filepath.Join("info", "http-alternates"):
			return fmt.Errorf("objects/%s: the repository borrows objects of another one: `git repack -a -d` makes it complete, then remove that file", name)
		}
		return nil
	})
}

// Git runs Git and hands what it prints to read, while it prints. When read fails, Git is ended.
// Paths among its arguments are no patterns.
func (b *Objects) Git(ctx context.Context, stdin io.Reader, read func(io.Reader) error, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", append([]string{"--no-pager", "--no-replace-objects"}, args...)...)
	cmd.Dir = b.dir
	// Nothing of this process's environment: it may name other settings, other
	// repositories and other programs.
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + b.dir, "XDG_CONFIG_HOME=" + b.dir, "LC_ALL=C", "GIT_DIR=" + b.dir,
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1",
		"GIT_ALLOW_PROTOCOL=", "GIT_PROTOCOL_FROM_USER=0", "GIT_NO_LAZY_FETCH=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_OPTIONAL_LOCKS=0", "GIT_LITERAL_PATHSPECS=1",
		"GIT_ALLOC_LIMIT=" + maxAllocated,
	}
	cmd.WaitDelay = 5 * time.Second
	cmd.Stdin = stdin
	complaint := &head{most: maxComplaint}
	cmd.Stderr = complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("git %s: %w", args[0], err)
	}
	failed := read(out)
	if failed != nil {
		cancel()
	}
	err = cmd.Wait()
	said := strings.TrimSpace(complaint.text.String())
	switch {
	case failed != nil && said != "" && (errors.Is(failed, io.EOF) || errors.Is(failed, io.ErrUnexpectedEOF)):
		return fmt.Errorf("git %s: %w: %q", args[0], failed, said)
	case failed != nil && (err == nil || ctx.Err() != nil):
		return failed
	case err != nil:
		return fmt.Errorf("git %s: %w: %q", args[0], err, said)
	}
	return failed
}

// head keeps the beginning of what is written to it.
type head struct {
	text bytes.Buffer
	most int
}

func (h *head) Write(data []byte) (int, error) {
	h.text.Write(data[:min(len(data), h.most-h.text.Len())])
	return len(data), nil
}
