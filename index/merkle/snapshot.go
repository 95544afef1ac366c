package merkle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"unicode/utf8"

	"github.com/rondo-rl/rondo/index/ignore"
	"github.com/rondo-rl/rondo/index/source"
)

// Snapshot makes the tree of a snapshot, which is the one that Walk makes of a directory with the
// same files; but names that are not UTF-8 are skipped, as io/fs has none. Nothing is remembered: a
// snapshot does not change. Errors are as those of Walk.
func Snapshot(ctx context.Context, tree fs.FS, limits Limits) (*Result, error) {
	if err := limits.Validate(); err != nil {
		return nil, err
	}
	rules, err := ignore.Root(nil, "")
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s := snapshot{walker: walker{limits: limits, stop: stop, skipped: map[source.Reason]int{}}, tree: tree}
	result := &Result{Root: s.folder(ctx, rules, "", 0), Skipped: s.skipped, Read: int(s.read.Load())}
	for _, f := range result.Root.Files() {
		result.Files++
		result.Bytes += f.Size
	}
	return result, s.partial()
}

type snapshot struct {
	walker
	tree fs.FS
}

func (s *snapshot) folder(ctx context.Context, rules *ignore.Folder, path string, depth int) Node {
	node := Node{}
	entries, rules, err := s.open(ctx, rules, path)
	if err != nil {
		s.miss(path, err)
		node.Unknown = true
	}
	for _, entry := range entries {
		if child, ok := s.entry(ctx, rules, join(path, entry.Name()), entry, depth); ok {
			node.Children = append(node.Children, child)
		}
	}
	node.seal()
	return node
}

func (s *snapshot) open(ctx context.Context, rules *ignore.Folder, path string) ([]fs.DirEntry, *ignore.Folder, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, nil, err
	}
	at := path
	if at == "" {
		at = "."
	}
	entries, err := fs.ReadDir(s.tree, at)
	if err != nil {
		return nil, nil, err
	}
	files := map[string]string{}
	for _, entry := range entries {
		if ignore.IsFile(entry.Name()) && entry.Type().IsRegular() {
			content, err := s.content(join(path, entry.Name()), ignore.MaxFile)
			if err != nil {
				return nil, nil, err
			}
			files[entry.Name()] = string(content)
		}
	}
	rules, err = rules.Own(files)
	if err != nil {
		return nil, nil, err
	}
	return entries, rules, nil
}

func (s *snapshot) entry(ctx context.Context, rules *ignore.Folder, path string, entry fs.DirEntry,
	depth int) (Node, bool) {
	name := entry.Name()
	reason := s.byKind(rules, name, entry.Type(), depth)
	if reason == source.Indexed && !utf8.ValidString(name) {
		reason = source.BadName // io/fs opens none
	}
	if reason != source.Indexed {
		s.skip(reason)
		return Node{}, false
	}
	if s.seen.Add(1) > int64(s.limits.Files) {
		s.stop(fmt.Errorf("%w (limit %d)", ErrTooManyFiles, s.limits.Files))
	}
	if entry.IsDir() {
		below, err := rules.Child(name, nil)
		if err != nil {
			return s.unreadable(path, name, nil, err).node, true
		}
		node := s.folder(ctx, below, path, depth+1)
		node.Name = name
		return node, len(node.Children) > 0 || node.Partial
	}
	if reason := source.ByName(name); reason != source.Indexed {
		s.skip(reason)
		return Node{}, false
	}
	err := context.Cause(ctx)
	var content []byte
	if err == nil {
		content, err = s.content(path, s.limits.FileBytes)
	}
	if errors.Is(err, errTooLarge) {
		s.skip(source.TooLarge)
		return Node{}, false
	} else if err != nil {
		return s.unreadable(path, name, nil, err).node, true
	}
	s.read.Add(1)
	m := memory{name: name, reason: source.Classify(name, content)}
	m.stamp.size, m.digest = int64(len(content)), digestOf(content)
	f := s.settle(m, false)
	return f.node, f.keep
}

func (s *snapshot) content(path string, limit int64) ([]byte, error) {
	f, err := s.tree.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = errTooLarge
	}
	return content, err
}
