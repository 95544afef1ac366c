package merkle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rondo-rl/rondo/index/ignore"
	"github.com/rondo-rl/rondo/index/source"
)

// Result is what a walk found.
type Result struct {
	Root    Node
	Files   int                   // in the tree
	Bytes   int64                 // of them
	Skipped map[source.Reason]int // entries that are not in the tree; an excluded folder is one
	Read    int                   // files that were read, as the state did not know them
	State   *State                // for the next walk
	Changed bool                  // whether the state is another than the one that the walk began with
}

// errGone says that a folder which held files is empty now, and another one: a mount that is
// missing looks like that.
var errGone = errors.New("it is empty, and not the folder that it was: is something not mounted? Delete the index's local state if it is right")

// Walk makes the tree of a directory. What the state of an earlier walk knows is not read
// again; nil knows nothing.
//
// Where a part of the tree could not be looked at, or the context ends, the error is a
// *PartialError, and the result holds the rest. With any other error there is no result.
func Walk(ctx context.Context, dir string, known *State, limits Limits) (*Result, error) {
	if err := limits.Validate(); err != nil {
		return nil, err
	}
	rules, err := ignore.ReadParents(dir)
	if err != nil {
		return nil, fmt.Errorf("walk %s: %w", dir, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("walk %s: %w", dir, err)
	}
	defer root.Close()
	if known == nil || known.limits != limits {
		known = &State{}
	}
	if known.root == nil {
		known.root = &remembered{}
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	w := &walker{limits: limits, began: time.Now(), stop: stop,
		workers: make(chan struct{}, max(runtime.GOMAXPROCS(0)-1, 1)), skipped: map[source.Reason]int{}}
	at := openFolder{root: root, rules: rules}
	node, memory := w.folder(ctx, at, known.root)
	own, err := statRoot(root)
	if err != nil {
		return nil, fmt.Errorf("walk %s: %w", dir, err)
	}
	if len(node.Children) == 0 && len(known.root.entries) > 0 &&
		(own.inode != known.inode || own.device != known.device) {
		return nil, fmt.Errorf("walk %s: %w", dir, errGone)
	}
	result := &Result{Root: node, Skipped: w.skipped, Read: int(w.read.Load())}
	for _, f := range node.Files() {
		result.Files++
		result.Bytes += f.Size
	}
	result.State = &State{limits: limits, inode: own.inode, device: own.device, root: memory}
	result.Changed = w.changed.Load() || own.inode != known.inode || own.device != known.device
	return result, w.partial()
}

func statRoot(root *os.Root) (stamp, error) {
	f, err := root.Open(".")
	if err != nil {
		return stamp{}, err
	}
	defer f.Close()
	return statOf(f)
}

// openFolder is a folder that is being looked at.
type openFolder struct {
	root  *os.Root
	list  *os.File       // the same, for listing and looking at entries
	rules *ignore.Folder // of the folders above; with the folder's own once they are read
	path  string         // from the root of the walk; empty there
	depth int
}

type walker struct {
	limits  Limits
	began   time.Time
	stop    context.CancelCauseFunc
	workers chan struct{} // limits the goroutines beside the first
	seen    atomic.Int64
	read    atomic.Int64
	changed atomic.Bool

	mu      sync.Mutex
	skipped map[source.Reason]int
	unknown []Unknown
	missed  int // the number of unknown paths
}

// entry is what became of one entry: a node, or none for what is skipped, and
// what is remembered of it.
type entry struct {
	node   Node
	keep   bool
	memory memory
	recall bool
}

// folder looks at the entries of a folder. What cannot be seen stays as the state knows it.
func (w *walker) folder(ctx context.Context, at openFolder, known *remembered) (Node, *remembered) {
	node := Node{}
	names, err := w.open(ctx, &at)
	if at.list != nil {
		defer at.list.Close()
	}
	if err != nil {
		w.miss(at.path, err)
		node.Unknown = true
		node.seal()
		return node, known
	}
	list := make([]entry, len(names))
	w.each(len(names), func(i int) { list[i] = w.entry(ctx, at, names[i], known) })
	memory := &remembered{entries: make([]memory, 0, len(list))}
	node.Children = make([]Node, 0, len(list))
	for i := range list {
		if list[i].keep {
			node.Children = append(node.Children, list[i].node)
		}
		if list[i].recall {
			memory.entries = append(memory.entries, list[i].memory)
		}
	}
	if len(memory.entries) != len(known.entries) {
		w.changed.Store(true)
	}
	node.seal()
	return node, memory
}

// open lists a folder, sorted, and reads its ignore files.
func (w *walker) open(ctx context.Context, at *openFolder) ([]string, error) {
	err := context.Cause(ctx)
	if err != nil {
		return nil, err
	}
	if at.list, err = at.root.Open("."); err != nil {
		return nil, err
	}
	names, err := at.list.Readdirnames(-1) // ReadDir would look at every entry, which is done once below
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var files map[string]string
	for _, name := range names {
		if !ignore.IsFile(name) {
			continue
		}
		now, err := statIn(at.root, at.list, name)
		if err != nil {
			return nil, err
		}
		if !now.regular {
			continue // Git does not follow a link here either
		}
		content, _, err := w.content(*at, name, ignore.MaxFile)
		if err != nil {
			return nil, err
		}
		if files == nil {
			files = map[string]string{}
		}
		files[name] = string(content)
	}
	at.rules, err = at.rules.Own(files)
	return names, err
}

// each calls do for 0 to n-1, on as many goroutines as there is room for.
func (w *walker) each(n int, do func(i int)) {
	const span = 64
	var group sync.WaitGroup
	for from := 0; from < n; from += span {
		to := min(from+span, n)
		run := func() {
			for i := from; i < to; i++ {
				do(i)
			}
		}
		select {
		case w.workers <- struct{}{}:
			group.Go(func() { defer func() { <-w.workers }(); run() })
		default:
			run()
		}
	}
	group.Wait()
}

func (w *walker) entry(ctx context.Context, at openFolder, name string, known *remembered) entry {
	path := join(at.path, name)
	memory := known.find(name)
	now, err := statIn(at.root, at.list, name)
	if err != nil {
		return w.unreadable(path, name, memory, err)
	}
	kind := now.kind()
	if reason := w.byKind(at.rules, name, kind, at.depth); reason != source.Indexed {
		return w.skip(reason)
	}
	if w.seen.Add(1) > int64(w.limits.Files) {
		w.stop(fmt.Errorf("%w (limit %d)", ErrTooManyFiles, w.limits.Files))
	}
	if err := context.Cause(ctx); err != nil {
		return w.unreadable(path, name, memory, err)
	}
	if kind.IsDir() {
		return w.enter(ctx, at, now, name, path, memory)
	}
	return w.file(at, now, name, path, memory)
}

// byKind says what is skipped without a look at it.
func (w *walker) byKind(rules *ignore.Folder, name string, kind fs.FileMode, depth int) source.Reason {
	switch {
	case len(name) > w.limits.NameBytes:
		return source.BadName
	case rules.Ignored(name, kind.IsDir()):
		return source.Ignored
	case kind&fs.ModeSymlink != 0:
		return source.Link
	case !kind.IsDir() && !kind.IsRegular():
		return source.Special
	case kind.IsDir() && depth+1 >= w.limits.Depth:
		return source.TooDeep
	}
	return source.Indexed
}

// enter goes into a folder.
func (w *walker) enter(ctx context.Context, at openFolder, now stamp, name, path string, known *memory) entry {
	root, err := at.root.OpenRoot(name)
	if err != nil {
		return w.unreadable(path, name, known, err)
	}
	defer root.Close()
	if err := same(root, now); err != nil {
		return w.unreadable(path, name, known, err)
	}
	rules, err := at.rules.Child(name, nil)
	if err != nil {
		return w.unreadable(path, name, known, err)
	}
	before := &remembered{}
	if known != nil && known.folder != nil {
		before = known.folder
	}
	node, after := w.folder(ctx, openFolder{root: root, rules: rules, path: path, depth: at.depth + 1}, before)
	node.Name = name
	return entry{
		node: node, keep: len(node.Children) > 0 || node.Partial,
		memory: memory{name: name, folder: after}, recall: len(after.entries) > 0,
	}
}

var errReplaced = errors.New("it was replaced while it was looked at")

// same makes sure that a folder was not opened through a link that took its place.
func same(root *os.Root, entry stamp) error {
	opened, err := statRoot(root)
	if err != nil {
		return err
	}
	if entry.inode != opened.inode || entry.device != opened.device {
		return errReplaced
	}
	return nil
}

// file digests a file, unless its stamp is known.
func (w *walker) file(at openFolder, now stamp, name, path string, known *memory) entry {
	if reason := source.ByName(name); reason != source.Indexed {
		return w.skip(reason)
	}
	if now.size > w.limits.FileBytes {
		return w.skip(source.TooLarge)
	}
	if known != nil && known.folder == nil && known.stamp == now {
		return w.settle(*known, true)
	}
	w.changed.Store(true)
	content, now, err := w.content(at, name, w.limits.FileBytes)
	if errors.Is(err, errTooLarge) {
		return w.skip(source.TooLarge)
	} else if err != nil {
		return w.unreadable(path, name, known, err)
	}
	w.read.Add(1)
	m := memory{name: name, stamp: now, reason: source.Classify(name, content)}
	if m.reason == source.Indexed {
		m.digest = digestOf(content)
	}
	return w.settle(m, !now.racy(w.began))
}

// settle makes a file's node of what is known of it.
func (w *walker) settle(m memory, recall bool) entry {
	if m.reason != source.Indexed {
		w.skip(m.reason)
		return entry{memory: m, recall: recall}
	}
	return entry{node: Node{Name: m.name, Digest: m.digest, Size: m.stamp.size}, keep: true, memory: m, recall: recall}
}

func (w *walker) skip(reason source.Reason) entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.skipped[reason]++
	return entry{}
}

// unreadable makes an entry that could not be looked at. What is known of it stays.
func (w *walker) unreadable(path, name string, known *memory, err error) entry {
	w.miss(path, err)
	f := entry{node: Node{Name: name, Unknown: true, Partial: true}, keep: true}
	if known != nil {
		f.memory, f.recall = *known, true
	}
	return f
}

func (w *walker) miss(path string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.missed++
	w.unknown = append(w.unknown, Unknown{Path: cmp.Or(path, "."), Err: err})
	if len(w.unknown) >= 4*maxUnknown {
		w.unknown = firstUnknown(w.unknown)
	}
}

func firstUnknown(list []Unknown) []Unknown {
	slices.SortFunc(list, func(a, b Unknown) int { return cmp.Compare(a.Path, b.Path) })
	return list[:min(len(list), maxUnknown)]
}

func (w *walker) partial() error {
	if w.missed == 0 {
		return nil
	}
	return &PartialError{Unknown: firstUnknown(w.unknown), Count: w.missed}
}

func (r *remembered) find(name string) *memory {
	i, ok := slices.BinarySearchFunc(r.entries, name, func(m memory,
		name string) int {
		return cmp.Compare(m.name, name)
	})
	if !ok {
		return nil
	}
	return &r.entries[i]
}
