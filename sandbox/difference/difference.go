// Package difference says what differs between two moments of a workspace, file by file and line by
// line. Archives are hostile, and may be large: what it holds of them is bounded.
package difference

import (
	"bytes"

	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"

	"github.com/rondo-rl/rondo/sandbox"
)

// Bounds of a comparison.
type Bounds struct {
	Files int   // from which on they are only counted
	Bytes int64 // of a file, on either side, from which on its lines are not compared
	Lines int   // of a file's difference, from which on they are only counted
}

// What happened to a path.
const (
	Added   = "added"
	Changed = "changed"
	Deleted = "deleted"
)

// Marks of lines.
const (
	Came   = '+'
	Went   = '-'
	Stayed = ' '
	Place  = '@' // where in the file the following lines are
)

// File is what happened to one path.
type File struct {
	Name  string
	What  string // Added, Changed or Deleted
	Note  string // what no lines say: the mode, a link's target, or why there are no lines
	Lines []Line
	More  int // lines that are left out
}

// Line is one line of a difference.
type Line struct {
	Mark rune
	Text string
}

// side is the workspace at a moment.
type side struct {
	contents map[string]string // of the change
	files    map[string]sandbox.File
}

// Compare compares two changes against the same snapshot; nil stands for an empty one. more counts
// the paths that differ and are left out.
func Compare(snapshot, before, after sandbox.Source, most Bounds) (files []File, more int, err error) {
	var was, is side
	if was.contents, err = sandbox.Contents(before); err != nil {
		return nil, 0, fmt.Errorf("the workspace before: %w", err)
	}
	if is.contents, err = sandbox.Contents(after); err != nil {
		return nil, 0, fmt.Errorf("the workspace after: %w", err)
	}
	names := differing(was.contents, is.contents)
	more = max(0, len(names)-most.Files)
	names = names[:len(names)-more]
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	if was.files, err = sandbox.Files(before, most.Bytes, presentIn(wanted, was.contents)); err != nil {
		return nil, 0, fmt.Errorf("the workspace before: %w", err)
	}
	if is.files, err = sandbox.Files(after, most.Bytes, presentIn(wanted, is.contents)); err != nil {
		return nil, 0, fmt.Errorf("the workspace after: %w", err)
	}
	inSnapshot := map[string]bool{}
	for name := range wanted {
		if was.unchanged(name) || is.unchanged(name) {
			inSnapshot[name] = true
		}
	}
	base, err := sandbox.Files(snapshot, most.Bytes, inSnapshot)
	if err != nil {
		return nil, 0, fmt.Errorf("the task's snapshot: %w", err)
	}
	for _, name := range names {
		if f, differs := compare(name, was.file(name, base), is.file(name, base), most); differs {
			files = append(files, f)
		}
	}
	return files, more, nil
}

// differing lists the paths of which two changes say different things.
func differing(before, after map[string]string) (names []string) {
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		a, inA := before[name]
		b, inB := after[name]
		if inA != inB || a != b {
			names = append(names, name)
		}
	}
	return names
}

func presentIn(wanted map[string]bool, contents map[string]string) map[string]bool {
	some := map[string]bool{}
	for name := range wanted {
		if _, ok := contents[name]; ok {
			some[name] = true
		}
	}
	return some
}

// unchanged reports whether a path is as the snapshot has it.
func (s *side) unchanged(name string) bool {
	if _, ok := s.contents[name]; ok {
		return false
	}
	// below a folder that is gone, or is none any more, nothing is
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if said, ok := s.contents[dir]; ok && !strings.HasPrefix(said, "d") || said == "deleted" {
			return false
		}
	}
	return true
}

// file is what is at a path, nil for nothing.
func (s *side) file(name string, base map[string]sandbox.File) *sandbox.File {
	f, ok := s.files[name]
	if !ok && s.unchanged(name) {
		f, ok = base[name]
	}
	if !ok || f.Deleted {
		return nil
	}
	return &f
}

// compare says what became of a path. A folder that came or went is told by what is
// in it, unless it is empty.
func compare(name string, was, is *sandbox.File, most Bounds) (f File, differs bool) {
	f = File{Name: name, What: Changed}
	switch {
	case was == nil && is == nil:
		return f, false
	case was == nil:
		f.What, f.Note = Added, noteOf(is)
	case is == nil:
		f.What, f.Note = Deleted, noteOf(was)
	case was.Mode.Type() != is.Mode.Type():
		f.Note = fmt.Sprintf("%s became %s", kindOf(was), kindOf(is))
	case was.Link != is.Link:
		f.Note = fmt.Sprintf("link to %s, now to %s", was.Link, is.Link)
	case was.Mode != is.Mode:
		f.Note = fmt.Sprintf("mode %o, now %o", was.Mode.Perm(), is.Mode.Perm())
	}
	old, oldText := textOf(was, most.Bytes)
	now, nowText := textOf(is, most.Bytes)
	if !oldText || !nowText {
		f.Note = strings.TrimPrefix(f.Note+fmt.Sprintf(", %s bytes, not shown as text", sizes(was, is)), ", ")
		return f, true
	}
	if old != now {
		f.Lines, f.More = Lines(old, now, contextLines, most.Lines)
	}
	return f, f.Note != "" || f.What != Changed || len(f.Lines) > 0
}

func kindOf(f *sandbox.File) string {
	switch {
	case f.Mode.IsDir():
		return "a folder"
	case f.Mode.IsRegular():
		return "a file"
	}
	return "a link to " + f.Link
}

// noteOf is what is to be said of a path that came or went, "" for an ordinary file.
func noteOf(f *sandbox.File) string {
	switch {
	case !f.Mode.IsRegular():
		return kindOf(f)
	case f.Mode.Perm()&0o111 != 0:
		return fmt.Sprintf("mode %o", f.Mode.Perm())
	}
	return ""
}

func sizes(was, is *sandbox.File) string {
	switch {
	case was == nil:
		return fmt.Sprint(is.Size)
	case is == nil:
		return fmt.Sprint(was.Size)
	}
	return fmt.Sprintf("%d and now %d", was.Size, is.Size)
}

// textOf is the text of a file, "" where there is none; ok is false where there is something else.
func textOf(f *sandbox.File, limit int64) (text string, ok bool) {
	if f == nil || !f.Mode.IsRegular() {
		return "", true
	}
	if f.Size > limit || bytes.IndexByte(f.Data, 0) >= 0 || !utf8.Valid(f.Data) {
		return "", false
	}
	return string(f.Data), true
}

// contextLines is how many lines that stayed are shown around those that changed.
const contextLines = 3

// Lines is how one text became another, with so many lines around each change that stayed. more
// counts those beyond most.
func Lines(old, now string, around, most int) (list []Line, more int) {
	text, err := udiff.ToUnified("", "", old, udiff.Lines(old, now), around)
	if err != nil { // edits of its own fit
		return nil, 0
	}
	_, text, _ = strings.Cut(text, "\n") // the names of both files
	_, text, _ = strings.Cut(text, "\n")
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			continue
		}
		if len(list) == most {
			more++
			continue
		}
		mark := rune(line[0])
		if mark == Place || mark == '\\' {
			list = append(list, Line{Place, line})
			continue
		}
		list = append(list, Line{mark, line[1:]})
	}
	return list, more
}
