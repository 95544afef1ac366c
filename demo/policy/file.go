package policy

import (
	"path"
	"strings"
)

// file is what the conversation has shown of one file, with the edits made since.
type file struct {
	path  string
	read  bool
	asked bool // a read was tried
	lines []string
	facts *fileFacts // derived from lines on first use
	key   uint64     // digest of path and lines, 0 until it is asked for
}

func (f *file) text() string { return strings.Join(f.lines, "\n") }

// replace is a change of whole lines: lines [start, start+count) of the file become with.
type replace struct {
	start, count int
	with         []string
}

// apply gives the lines of the file after the change.
func (r replace) apply(lines []string) []string {
	out := make([]string, 0, len(lines)-r.count+len(r.with))
	out = append(out, lines[:r.start]...)
	out = append(out, r.with...)
	return append(out, lines[r.start+r.count:]...)
}

// invert gives the change that undoes r.
func (r replace) invert(lines []string) replace {
	return replace{start: r.start, count: len(r.with), with: lines[r.start : r.start+r.count]}
}

// strings gives the change as the texts of a search_replace call: the old text occurs once in the
// file. Lines around the change are added until it does. ok is false when nothing makes it unique.
func (r replace) strings(lines []string) (old, replacement string, ok bool) {
	whole := strings.Join(lines, "\n")
	before, after := r.start, r.start+r.count
	if r.count == 0 || len(r.with) == 0 { // a bare insertion or deletion needs a line to hold on to
		if after < len(lines) {
			after++
		} else if before > 0 {
			before--
		}
	}
	for {
		old = strings.Join(lines[before:after], "\n")
		if old != "" && strings.Count(whole, old) == 1 {
			break
		}
		switch {
		case before > 0 && (after == len(lines) || (r.start-before) <= (after-r.start-r.count)):
			before--
		case after < len(lines):
			after++
		default:
			return "", "", false
		}
	}
	parts := make([]string, 0, after-before+len(r.with))
	parts = append(parts, lines[before:r.start]...)
	parts = append(parts, r.with...)
	parts = append(parts, lines[r.start+r.count:after]...)
	replacement = strings.Join(parts, "\n")
	return old, replacement, replacement != old
}

// difference is the smallest replace that turns one list of lines into the other.
func difference(from, to []string) replace {
	head := 0
	for head < len(from) && head < len(to) && from[head] == to[head] {
		head++
	}
	tail := 0
	for tail < len(from)-head && tail < len(to)-head && from[len(from)-1-tail] == to[len(to)-1-tail] {
		tail++
	}
	return replace{start: head, count: len(from) - head - tail, with: to[head : len(to)-tail]}
}

// language is as much as the operators need to know of a file's language.
type language int

const (
	prose language = iota // not for mutation
	shell
	code
)

func (f *file) language() language {
	switch path.Ext(f.path) {
	case ".md", ".txt", ".rst", ".log", ".csv", ".json", ".lock", ".sum", ".mod", ".toml", ".html",
		".svg", ".xml", ".gitignore":
		return prose
	case ".sh", ".bash", ".ksh", ".dash", ".bats":
		return shell
	case "":
		if !f.read || len(f.lines) == 0 {
			return prose
		}
		if first := f.lines[0]; strings.HasPrefix(first, "#!") {
			if strings.Contains(first, "sh") {
				return shell
			}
			return code
		}
		if base := path.Base(f.path); base == "Makefile" || base == "makefile" {
			return shell
		}
		if strings.Contains(f.path, "/.") || strings.HasPrefix(f.path, ".") || strings.ToUpper(f.path) == f.path {
			return prose
		}
		return shell
	}
	return code
}

// looksLikeTest tells test programs and their data by name, as a person would: the policy repairs
// code, it does not touch tests.
func looksLikeTest(name string) bool {
	for part := range strings.SplitSeq(strings.ToLower(name), "/") {
		stem := strings.TrimSuffix(part, path.Ext(part))
		for _, word := range strings.FieldsFunc(stem, func(r rune) bool { return r == '_' || r == '-' || r == '.' }) {
			switch word {
			case "test", "tests", "testing", "testdata", "spec", "specs", "selftest", "selfcheck", "fixtures",
				"expected", "runtests", "testsuite":
				return true
			}
		}
	}
	return false
}
