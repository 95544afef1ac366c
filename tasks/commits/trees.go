package commits

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

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
	maxPath        = 2048 // bytes: the folder of a task stands before it
	maxBase        = 255  // bytes of a file's or a folder's own name
	maxTarget      = 4095 // bytes of a link
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
// user's final files, which has the instruction as its message. All are searched before the first
// is written: what is known as a secret in one of them is masked in each.
func (w *treeWriter) ofSession(ctx context.Context, s *session) (began, agent, final writtenTree, err error) {
	err = w.mask.search(ctx, s.wish)
	for _, side := range [][2]*storage.Ref{{&s.began, nil}, {&s.began, s.judged.left}, {s.final, nil}} {
		if err == nil {
			err = w.search(ctx, side[0], side[1])
		}
	}
	if err != nil {
		return began, agent, final, err
	}
	message, err := w.mask.mask(ctx, []byte(s.wish))
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

// search notes the secrets of a snapshot with a change applied over it.
func (w *treeWriter) search(ctx context.Context, snapshot, change *storage.Ref) error {
	files, err := w.unpacked(ctx, snapshot, change)
	if err != nil {
		return err
	}
	err = w.mask.search(ctx, joined(files))
	for _, f := range files {
		if err == nil {
			err = w.mask.search(ctx, string(f.data))
		}
	}
	return err
}

func joined(files map[string]treeFile) string {
	return strings.Join(slices.Sorted(maps.Keys(files)), "\n")
}

// files are those of a tree by their paths, with marks in the place of all secrets that are known.
func (w *treeWriter) files(ctx context.Context, snapshot, change *storage.Ref) (map[string]treeFile, error) {
	files, err := w.unpacked(ctx, snapshot, change)
	if err != nil {
		return nil, err
	}
	secrets, err := w.mask.find(ctx, joined(files))
	if err == nil && len(secrets) > 0 {
		err = &refusedTree{SecretName, secrets[0].Rule}
	}
	for name, f := range files {
		if err != nil {
			break
		}
		if f.data, err = w.mask.mask(ctx, f.data); err == nil && f.mode == linkMode && len(f.data) > maxTarget {
			err = &refusedTree{OddNames, "a link is too long with its marks"}
		}
		files[name] = f
	}
	return files, err
}

// unpacked are the files of a tree by their paths, without leftovers.
func (w *treeWriter) unpacked(ctx context.Context, snapshot, change *storage.Ref) (map[string]treeFile, error) {
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
		said := strings.ToValidUTF8(err.Error(), "?") // it can have names of files
		if err := w.mask.search(ctx, said); err != nil {
			return nil, err
		}
		detail, err := w.mask.mask(ctx, []byte(said))
		return nil, cmp.Or(err, error(&refusedTree{UnreadableFiles, string(detail)}))
	}
	files := map[string]treeFile{}
	for name, file := range tree {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f := treeFile{"100644", file.Data}
		switch {
		case file.Mode.IsDir() || isLeftover(name):
			continue
		case file.Mode&fs.ModeSymlink != 0:
			f.mode = linkMode
		case file.Mode&0o111 != 0:
			f.mode = "100755"
		}
		base := path.Base(name)
		if strings.EqualFold(base, ".git") || f.mode == linkMode && strings.EqualFold(base, ".gitmodules") {
			continue // or Git would take no such tree
		}
		if odd := oddName(name); odd != "" {
			return nil, &refusedTree{OddNames, odd}
		}
		if f.mode == linkMode && len(f.data) > maxTarget {
			return nil, &refusedTree{OddNames, fmt.Sprintf("a link of more than %d bytes", maxTarget)}
		}
		files[name] = f
	}
	return files, nil
}

// linkMode is Git's of a symbolic link.
const linkMode = "120000"

// isLeftover reports whether a file is below a folder of leftovers.
func isLeftover(name string) bool {
	for folder, rest, below := strings.Cut(name, "/"); below; folder, rest, below = strings.Cut(rest, "/") {
		if slices.Contains(leftovers, strings.ToLower(folder)) {
			return true
		}
	}
	return false
}

// oddName is why a machine may have no file of a name, "" where each has. It tells nothing of the
// name, which may be a secret.
func oddName(name string) string {
	switch {
	case !utf8.ValidString(name):
		return "a name that is not UTF-8"
	case len(name) > maxPath:
		return fmt.Sprintf("a path of more than %d bytes", maxPath)
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > maxBase {
			return fmt.Sprintf("a name of more than %d bytes", maxBase)
		}
	}
	return ""
}

// masker puts marks in the place of secrets. The trees of a session have most files in
// common: each is searched once, and masked once.
type masker struct {
	secrets  map[string]string // with the rule of each
	searched map[[sha256.Size]byte]bool
	clean    map[[sha256.Size]byte]bool
	masked   map[[sha256.Size]byte][]byte
	found    int
	left     time.Duration // for the search
}

func newMasker() *masker {
	return &masker{map[string]string{}, map[[sha256.Size]byte]bool{}, map[[sha256.Size]byte]bool{},
		map[[sha256.Size]byte][]byte{}, 0, maxSearch}
}

// inTime does a part of the search.
func (m *masker) inTime(ctx context.Context, part func(context.Context) error) error {
	inTime, cancel := context.WithTimeout(ctx, m.left)
	defer cancel()
	begin := time.Now()
	err := part(inTime)
	if m.left -= time.Since(begin); err != nil && ctx.Err() == nil && inTime.Err() != nil {
		return &refusedTree{SlowSearch, fmt.Sprint("more than ", maxSearch)}
	}
	return err
}

// search notes the secrets of a text.
func (m *masker) search(ctx context.Context, text string) error {
	sum := sha256.Sum256([]byte(text))
	if m.searched[sum] {
		return nil
	}
	err := m.inTime(ctx, func(ctx context.Context) error {
		secrets, err := redact.Secrets(ctx, text)
		for secret, rule := range secrets {
			if known, there := m.secrets[secret]; !there || rule < known {
				m.secrets[secret] = rule
			}
		}
		return err
	})
	m.searched[sum] = err == nil
	return err
}

// find finds the secrets that are known in a text.
func (m *masker) find(ctx context.Context, text string) (found []redact.Span, err error) {
	err = m.inTime(ctx, func(ctx context.Context) (err error) {
		found, err = redact.Occurrences(ctx, text, m.secrets)
		return cmp.Or(err, ctx.Err())
	})
	return found, err
}

// mask is a text with marks in the place of the secrets that are known: search all first.
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
