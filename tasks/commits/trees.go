package commits

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/redact"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/storage"
	storedparts "github.com/rondo-rl/rondo/storage/parts"
	"github.com/rondo-rl/rondo/tasks/swebench"
)

// Bounds of the files of a session.
const (
	maxSessionTree = 512 << 20 // bytes of an archive when it is unpacked, as of sandbox.Tree
	maxSearch      = 3 * time.Minute
)

// leftovers are folders that programs make and no repository has: they would
// be changes of the user's.
var leftovers = []string{".git", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", "node_modules", ".venv"}

// refusedTree is what is wrong with the files of a session, and not with this machine.
type refusedTree struct{ reason, detail string }

func (r *refusedTree) Error() string { return r.reason + ": " + r.detail }

// writtenTree is a tree of files as a commit. The content tells it from others.
type writtenTree struct {
	id      string
	content [sha256.Size]byte
}

// treeWriter makes commits of packed trees, with marks in the place of secrets.
type treeWriter struct {
	objects *swebench.Objects
	store   storage.Store
	mask    *masker
}

// ofSession makes the commits of what a session began with, of what the agent left and of the
// user's final files, which has the instruction as its message.
func (w *treeWriter) ofSession(ctx context.Context, s *session,
	instruction string) (began, agent, final writtenTree, err error) {
	message, err := w.mask.mask(ctx, []byte(instruction))
	if err != nil {
		return began, agent, final, err
	}
	if began, err = w.write(ctx, "began", "", "The files that the query began with", &s.began, nil); err != nil {
		return began, agent, final, err
	}
	if agent, err = w.write(ctx, "agent", began.id, "The agent's", &s.began, s.judged.left); err != nil {
		return began, agent, final, err
	}
	final, err = w.write(ctx, "final", began.id, string(message), s.final, nil)
	return began, agent, final, err
}

// write makes a commit of a snapshot with a change applied over it.
func (w *treeWriter) write(ctx context.Context, name, parent, message string, snapshot,
	change *storage.Ref) (writtenTree, error) {
	files, err := w.files(ctx, snapshot, change)
	if err != nil {
		return writtenTree{}, err
	}
	var tree writtenTree
	sum := sha256.New()
	stream, in := io.Pipe()
	go func() {
		begin := "" // no parent
		if parent != "" {
			begin = "from " + parent + "\ndeleteall\n"
		}
		fmt.Fprintf(in, "feature done\ncommit refs/heads/%s\nmark :1\ncommitter Rondo <rondo@localhost> 978307200 +0000\ndata %d\n%s\n%s",
			name, len(message), message, begin)
		for _, path := range slices.Sorted(maps.Keys(files)) {
			f := files[path]
			fmt.Fprintf(io.MultiWriter(in, sum), "M %s inline %s\ndata %d\n%s\n", f.mode,
				quotedPath(path), len(f.data), f.data)
		}
		io.WriteString(in, "get-mark :1\ndone\n")
		in.Close()
	}()
	err = w.objects.Git(ctx, stream, func(out io.Reader) error {
		id, err := readAll(out, 100)
		tree.id = strings.TrimSpace(string(id))
		return err
	}, "fast-import", "--quiet")
	stream.CloseWithError(io.ErrClosedPipe) // where Git has ended before it read all
	if err == nil && len(tree.id) != 40 {
		err = fmt.Errorf("git fast-import: %.100q is no commit", tree.id)
	}
	if err != nil {
		return tree, err
	}
	copy(tree.content[:], sum.Sum(nil))
	return tree, nil
}

// quotedPath is a path as Git reads it between quotes.
func quotedPath(path string) string {
	var out strings.Builder
	out.WriteByte('"')
	for _, b := range []byte(path) {
		if b < ' ' || b == '"' || b == '\\' || b > '~' {
			fmt.Fprintf(&out, `\%03o`, b)
			continue
		}
		out.WriteByte(b)
	}
	out.WriteByte('"')
	return out.String()
}

type treeFile struct {
	mode string
	data []byte
}

// files are those of a tree by their paths, without secrets and leftovers.
func (w *treeWriter) files(ctx context.Context, snapshot, change *storage.Ref) (map[string]treeFile, error) {
	var failed error
	source := func(ref *storage.Ref) sandbox.Source {
		if ref == nil {
			return nil
		}
		return func() (io.ReadCloser, error) {
			from, _, err := storedparts.Open(ctx, w.store, *ref, nil)
			if err != nil {
				failed = err
				return nil, err
			}
			return storedSource{io.LimitReader(from, maxSessionTree), from, &failed}, nil
		}
	}
	tree, err := sandbox.Tree(maxSessionTree, source(snapshot), source(change))
	switch {
	case failed != nil && storage.IsUnusable(failed):
		return nil, &refusedTree{LostFiles, failed.Error()}
	case failed != nil:
		return nil, failed
	case err != nil:
		detail, err := w.mask.mask(ctx, []byte(err.Error())) // it can have names of files
		return nil, cmp.Or(err, error(&refusedTree{UnreadableFiles, string(detail)}))
	}
	files := map[string]treeFile{}
	err = fs.WalkDir(tree, ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case slices.Contains(leftovers, strings.ToLower(entry.Name())) && entry.IsDir():
			return fs.SkipDir
		case entry.IsDir(), strings.EqualFold(entry.Name(), ".git"), entry.Type()&fs.ModeSymlink != 0 &&
			strings.EqualFold(entry.Name(), ".gitmodules"):
			return nil // or Git would take no such tree
		}
		f, err := w.file(ctx, tree, path, entry)
		files[path] = f
		return err
	})
	if err != nil {
		return nil, err
	}
	names := strings.Join(slices.Sorted(maps.Keys(files)), "\n")
	secrets, err := w.mask.find(ctx, names)
	if err == nil && len(secrets) > 0 {
		err = &refusedTree{SecretName, secrets[0].Rule}
	}
	return files, err
}

func (w *treeWriter) file(ctx context.Context, tree fs.FS, path string, entry fs.DirEntry) (f treeFile, err error) {
	info, err := entry.Info()
	if err != nil {
		return f, err
	}
	f.mode = "100644"
	switch mode := info.Mode(); {
	case mode&fs.ModeSymlink != 0:
		f.mode = "120000"
		target, err := fs.ReadLink(tree, path)
		if err != nil {
			return f, err
		}
		f.data, err = w.mask.mask(ctx, []byte(target))
		return f, err
	case mode&0o111 != 0:
		f.mode = "100755"
	}
	if f.data, err = fs.ReadFile(tree, path); err != nil {
		return f, err
	}
	f.data, err = w.mask.mask(ctx, f.data)
	return f, err
}

// masker puts marks in the place of secrets. The trees of a session have most files in
// common: each is searched once.
type masker struct {
	clean  map[[sha256.Size]byte]bool
	masked map[[sha256.Size]byte][]byte
	found  int
	left   time.Duration // for the search
}

func newMasker() *masker {
	return &masker{map[[sha256.Size]byte]bool{}, map[[sha256.Size]byte][]byte{}, 0, maxSearch}
}

func (m *masker) find(ctx context.Context, text string) ([]redact.Span, error) {
	inTime, cancel := context.WithTimeout(ctx, m.left)
	defer cancel()
	begin := time.Now()
	found, err := redact.Find(inTime, text)
	if m.left -= time.Since(begin); err != nil && ctx.Err() == nil && inTime.Err() != nil {
		err = &refusedTree{SlowSearch, fmt.Sprint("more than ", maxSearch)}
	}
	return found, err
}

func (m *masker) mask(ctx context.Context, data []byte) ([]byte, error) {
	sum := sha256.Sum256(data)
	if done, there := m.masked[sum]; there || m.clean[sum] {
		if there {
			return done, nil
		}
		return data, nil
	}
	text := string(data)
	found, err := m.find(ctx, text)
	if err != nil {
		return nil, err
	}
	if m.clean[sum] = len(found) == 0; len(found) == 0 {
		return data, nil
	}
	m.found += len(found)
	m.masked[sum] = []byte(redact.Mask(text, found))
	return m.masked[sum], nil
}
