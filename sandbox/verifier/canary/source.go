package canary

import (
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing/fstest"
)

// source is a file of tests as it is once they are in place, and which of its lines the task hides.
type source struct {
	name   string
	lines  []string
	hidden map[int]bool
}

// patchFile is the patch that puts an instance's tests into the workspace.
const patchFile = "test.patch"

// sourcesOf are the files of tests that are readable: those that the patch makes or changes, and
// those that lie beside it.
func sourcesOf(tests, snapshot fs.FS) (sources []source) {
	if snapshot == nil { // it is in an image that nobody has opened
		snapshot = fstest.MapFS{}
	}
	if data, err := fs.ReadFile(tests, patchFile); err == nil && len(data) <= maxSource {
		sources = patched(string(data), snapshot)
	}
	_ = fs.WalkDir(tests, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || !readable(name) {
			return err
		}
		data, err := fs.ReadFile(tests, name)
		if err == nil && len(data) <= maxSource {
			s := source{name: name, lines: strings.Split(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n"),
				hidden: map[int]bool{}}
			for i := range s.lines {
				s.hidden[i] = true
			}
			sources = append(sources, s)
		}
		return err
	})
	return sources
}

func readable(name string) bool {
	return listers[path.Ext(name)] != nil && (path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"))
}

var hunkHead = regexp.MustCompile(`^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@`)

// patched applies a unified diff to the files of a snapshot that can be read. A file whose hunks do
// not fit exactly is left out.
func patched(patch string, snapshot fs.FS) (sources []source) {
	lines := strings.Split(strings.ReplaceAll(patch, "\r\n", "\n"), "\n")
	for i := 0; i < len(lines); {
		name, ok := strings.CutPrefix(lines[i], "+++ b/")
		if !ok || i == 0 || !strings.HasPrefix(lines[i-1], "--- ") {
			i++
			continue
		}
		name, _, _ = strings.Cut(name, "\t")
		var before []string
		if old, ok := strings.CutPrefix(lines[i-1], "--- a/"); ok {
			old, _, _ = strings.Cut(old, "\t")
			if data, err := fs.ReadFile(snapshot, path.Clean(old)); err == nil && len(data) <= maxSource {
				before = strings.Split(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")
			}
		}
		s := source{name: path.Clean(name), hidden: map[int]bool{}}
		if i, ok = s.apply(before, lines, i+1); ok && readable(s.name) {
			sources = append(sources, s)
		}
	}
	return sources
}

// apply applies the hunks of one file, which begin at lines[i]. It answers where they
// end, and whether they fit.
func (s *source) apply(before, lines []string, i int) (end int, ok bool) {
	at := 0 // of before
	for i < len(lines) {
		head := hunkHead.FindStringSubmatch(lines[i])
		if head == nil {
			break
		}
		from, _ := strconv.Atoi(head[1])
		olds, news := count(head[2]), count(head[4])
		if olds > 0 {
			from-- // lines are counted from 1
		}
		if from < at || from > len(before) {
			return i + 1, false
		}
		s.lines, at = append(s.lines, before[at:from]...), from
		for i++; i < len(lines) && (olds > 0 || news > 0); i++ {
			kind, text := byte(' '), ""
			if lines[i] != "" {
				kind, text = lines[i][0], lines[i][1:]
			}
			if kind == '\\' {
				continue
			}
			if kind != '+' {
				if at >= len(before) || before[at] != text {
					return i, false
				}
				at, olds = at+1, olds-1
			}
			if kind != '-' {
				s.hidden[len(s.lines)] = kind == '+'
				s.lines, news = append(s.lines, text), news-1
			}
		}
	}
	s.lines = append(s.lines, before[min(at, len(before)):]...)
	return i, true
}

func count(number string) int {
	if number == "" {
		return 1
	}
	n, _ := strconv.Atoi(number)
	return n
}
