package tasks

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rondo-rl/rondo/sandbox"
)

// Limits of one task folder. They are far above any honest repository task and
// far below what would hurt the machine that loads a pack.
const (
	maxFiles = sandbox.MaxFiles // files and folders
	maxBytes = sandbox.MaxBytes // bytes of all files
	maxDepth = 64               // nested folders
	maxName  = 255              // bytes of one name, as on Linux

	// What a task keeps from its agent passes through memory.
	maxHiddenFile = 16 << 20  // bytes of one file
	maxHidden     = 128 << 20 // bytes of all files
)

// hiddenFolders hold what the agent does not see.
var hiddenFolders = []string{"tests", "solution", "steps"}

// scan reads the names, sizes and links of a task folder, and refuses what a
// task has no reason to hold.
func scan(fsys fs.FS, dir string) (*node, error) {
	s := &scanner{fsys: fsys, base: dir}
	root := newDir(path.Base(dir))
	if err := s.dir(root, ".", 0); err != nil {
		return nil, err
	}
	if err := checkLinks(root, "."); err != nil {
		return nil, err
	}
	return root, nil
}

type scanner struct {
	fsys  fs.FS
	base  string // the task folder in fsys; names in errors are relative to it
	files int
	bytes int64 // of all files

	hidden int64 // of those in hiddenFolders
}

func (s *scanner) dir(parent *node, at string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s: folders nested deeper than %d", at, maxDepth)
	}
	entries, err := readDir(s.fsys, path.Join(s.base, at), maxFiles-s.files)
	if errors.Is(err, errTooMany) {
		return fmt.Errorf("more than %d files and folders", maxFiles)
	}
	if err != nil {
		return err
	}
	s.files += len(entries)
	for _, entry := range entries {
		name := path.Join(at, entry.Name())
		child, err := s.entry(entry, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		parent.children[child.name] = child
		if !child.isDir() {
			continue
		}
		if err := s.dir(child, name, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (s *scanner) entry(entry fs.DirEntry, name string) (*node, error) {
	full := path.Join(s.base, name)
	if err := checkName(entry.Name()); err != nil {
		return nil, err
	}
	switch entry.Type() {
	case fs.ModeDir:
		return newDir(entry.Name()), nil
	case fs.ModeSymlink:
		target, err := fs.ReadLink(s.fsys, full)
		if err != nil {
			return nil, err
		}
		return &node{name: entry.Name(), mode: fs.ModeSymlink | 0o777, link: target}, nil
	case 0:
		return s.file(entry, name)
	}
	return nil, fmt.Errorf("is a %s: a task holds files, folders and links only", kind(entry.Type()))
}

func (s *scanner) file(entry fs.DirEntry, name string) (*node, error) {
	info, err := entry.Info()
	if err != nil {
		return nil, err
	}
	if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
		return nil, errors.New("is setuid or setgid")
	}
	if err := s.count(name, info.Size()); err != nil {
		return nil, err
	}
	file := &node{name: entry.Name(), mode: 0o644, size: info.Size(), source: s.fsys, path: path.Join(s.base, name)}
	script, err := isScript(file)
	if err != nil {
		return nil, err
	}
	if script || info.Mode()&0o111 != 0 {
		file.mode = 0o755
	}
	return file, nil
}

// count holds a file, and all of them together, to their limits.
func (s *scanner) count(name string, size int64) error {
	if s.bytes += size; s.bytes > int64(maxBytes) {
		return fmt.Errorf("the task's files exceed %d bytes together", int64(maxBytes))
	}
	if top, _, _ := strings.Cut(name, "/"); !slices.Contains(hiddenFolders, top) {
		return nil
	}
	if size > maxHiddenFile {
		return fmt.Errorf("%d bytes, the limit of one file of %s is %d", size,
			strings.Join(hiddenFolders, ", "), maxHiddenFile)
	}
	if s.hidden += size; s.hidden > maxHidden {
		return fmt.Errorf("the files of %s exceed %d bytes together", strings.Join(hiddenFolders, ", "), maxHidden)
	}
	return nil
}

// isScript reports whether a file starts with "#!": embedded packs carry no
// executable bit, and a task must be the same in both forms.
func isScript(file *node) (bool, error) {
	if file.size < 2 {
		return false, nil
	}
	content, err := file.open()
	if err != nil {
		return false, err
	}
	defer content.Close()
	var head [2]byte
	if _, err := io.ReadFull(content, head[:]); err != nil {
		return false, err
	}
	return string(head[:]) == "#!", nil
}

func kind(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "named pipe"
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}

// checkName refuses names that some part of the way to the sandbox, or a
// reader's terminal, would misread.
func checkName(name string) error {
	switch {
	case name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\\"):
		return fmt.Errorf("bad file name %q", name)
	case len(name) > maxName:
		return fmt.Errorf("file name of %d bytes, the limit is %d", len(name), maxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("file name %q is not UTF-8", name)
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("file name %q holds a control character", name)
	}
	return nil
}

var errTooMany = errors.New("too many entries")

// readDir lists a folder by name, in pieces so that a huge one is refused
// before it fills the memory.
func readDir(fsys fs.FS, name string, limit int) ([]fs.DirEntry, error) {
	file, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	dir, ok := file.(fs.ReadDirFile)
	if !ok {
		return nil, fmt.Errorf("%s: is no folder", name)
	}
	var entries []fs.DirEntry
	for {
		some, err := dir.ReadDir(512)
		entries = append(entries, some...)
		if len(entries) > limit {
			return nil, fmt.Errorf("%s: %w (limit %d)", name, errTooMany, limit)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}
