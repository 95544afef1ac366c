package archive

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
)

// Filtered is a change from which Filter took what must not reach the tests.
type Filtered struct {
	Change    Source   // what is left, nil when nothing is
	Protected []string // paths that stay as the snapshot has them
	Links     []string // links that would have led out of the tree
}

// Filter takes out of a change all that touches protected paths, and links that lead out of the
// tree at root, an absolute path; links to programs of the system may stay. To delete a folder that
// holds protected files deletes the others. A change that makes a link of the snapshot lead out is
// refused with ErrInvalid.
func Filter(snapshot, change Source, root string, protected func(name string) bool) (Filtered, error) {
	s := &filtering{root: root, protected: protected, dropped: map[int]bool{}}
	if err := s.plant(snapshot); err != nil {
		return Filtered{}, err
	}
	s.guard(s.tree, "")
	if err := change.read(func(e entry, _ io.Reader) error {
		s.entries = append(s.entries,
			e)
		return nil
	}); err != nil {
		return Filtered{}, err
	}
	s.dropProtected()
	if err := s.dropLinks(snapshot); err != nil {
		return Filtered{}, err
	}
	switch {
	case len(s.dropped) == 0:
		s.found.Change = change
	case len(s.dropped) < len(s.entries) || len(s.added) > 0:
		s.found.Change = func() (io.ReadCloser, error) { return s.rewritten(change), nil }
	}
	return s.found, nil
}

// node is a path of a tree, without its content.
type node struct {
	kind     fs.FileMode // type alone
	link     string
	guarded  bool // protected, or a folder that holds something protected
	children map[string]*node
}

// node finds or makes a place; a path through what is no folder makes a folder of it.
func (p *node) node(name string) *node {
	for part := range strings.SplitSeq(name, "/") {
		if p.kind != fs.ModeDir || p.children == nil {
			p.kind, p.link = fs.ModeDir, ""
			p.children = map[string]*node{}
		}
		next := p.children[part]
		if next == nil {
			next = &node{}
			p.children[part] = next
		}
		p = next
	}
	return p
}

// find is the place of a path, nil where there is none.
func (p *node) find(name string) *node {
	for part := range strings.SplitSeq(name, "/") {
		if p = p.children[part]; p == nil {
			return nil
		}
	}
	return p
}

func (p *node) put(e entry) {
	if e.deleted {
		p.remove(e.name)
		return
	}
	found := p.node(e.name)
	found.kind, found.link = e.mode.Type(), e.link
	if !e.mode.IsDir() {
		found.children = nil
	}
}

func (p *node) remove(name string) {
	folder := p
	if cut := strings.LastIndexByte(name, '/'); cut >= 0 {
		folder, name = p.find(name[:cut]), name[cut+1:]
	}
	if folder != nil {
		delete(folder.children, name)
	}
}

// filtering is the work of one Filter.
type filtering struct {
	tree      *node // the snapshot, then with the change
	root      string
	protected func(string) bool
	entries   []entry
	dropped   map[int]bool // indexes of entries
	added     []entry      // deletions in the place of a folder's
	steps     int          // of resolving links
	found     Filtered
}

// plant makes the tree the snapshot's.
func (s *filtering) plant(snapshot Source) error {
	s.tree = &node{kind: fs.ModeDir}
	if err := snapshot.read(func(e entry, _ io.Reader) error { s.tree.put(e); return nil }); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	return nil
}

// guard marks what of the snapshot no change may remove.
func (s *filtering) guard(p *node, name string) bool {
	p.guarded = name != "" && s.protected(name)
	for part, child := range p.children {
		if s.guard(child, joined(name, part)) {
			p.guarded = true
		}
	}
	return p.guarded
}

func joined(folder, name string) string {
	if folder == "" {
		return name
	}
	return folder + "/" + name
}

func (s *filtering) dropProtected() {
	for i, e := range s.entries {
		before := s.tree.find(e.name)
		folder := e.mode.IsDir() && !e.deleted
		switch {
		case folder && (before == nil || before.kind == fs.ModeDir):
			continue // what is in it is looked at for itself
		case s.protected(e.name):
		case before == nil || !before.guarded || folder:
			continue
		case e.deleted:
			s.thin(before, e.name)
		}
		s.dropped[i] = true
		s.found.Protected = append(s.found.Protected, e.name)
	}
	slices.SortFunc(s.added, func(a, b entry) int { return strings.Compare(a.name, b.name) })
}

// thin deletes what is not protected of a folder that is not to be deleted as a whole.
func (s *filtering) thin(folder *node, name string) {
	for part, child := range folder.children {
		full := joined(name, part)
		switch {
		case !child.guarded:
			s.added = append(s.added, entry{name: full, deleted: true})
		case !s.protected(full):
			s.thin(child, full)
		}
	}
}

// rewritten gives what is left of the change.
func (s *filtering) rewritten(change Source) io.ReadCloser {
	out, in := io.Pipe()
	go func() { in.CloseWithError(s.rewrite(change, in)) }()
	return out
}

func (s *filtering) rewrite(change Source, to io.Writer) error {
	buffered := bufio.NewWriterSize(to, 64<<10)
	out, i := newPlainWriter(buffered), -1
	err := change.read(func(e entry, content io.Reader) error {
		if i++; s.dropped[i] {
			return nil
		}
		return out.add(e, content)
	})
	for _, e := range s.added {
		if err == nil {
			err = out.add(e, nil)
		}
	}
	if err != nil {
		return err
	}
	return errors.Join(out.finish(), buffered.Flush())
}
