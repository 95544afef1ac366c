package policy

import (
	"slices"
	"strings"
	"testing"
)

// stateWith has read the files and seen a failing test.
func stateWith(files map[string]string, failing string) *state {
	s := newState(toyTools)
	s.observe(&Message{Role: "user", Content: "Repair it. `sh test.sh` tells \"three\" from 'four'."})
	for name, body := range files {
		f := s.addFile(name)
		f.hold(splitLines(body))
	}
	s.observeRun("sh test.sh", failing+"\nexit code: 1")
	return s
}

// TestOperatorsReach lists, for each kind of small change, a line and what an operator must be able to make of it.
func TestOperatorsReach(t *testing.T) {
	const shellAround = "count() {\n  total=0; size=1\n  other \"$2\"\n}\nother() {\n  echo 'a-z' \"x:y\" 7\n}\n"
	const goAround = "package p\n\nimport \"strings\"\n\nvar limit, width int\nvar ok, found bool\nvar list []int\nvar err error\n\nfunc low(a, b int) int { return a }\nfunc f(text string, a, b int) (int, error) {\n\tx := 1\n\tfor i := 0; i < 3; i++ {\n@\n\t}\n\treturn x, nil\n}\n"
	for _, c := range []struct{ name, line, want string }{
		{"a.sh", `if [ "$total" -ge 3 ]; then`, `if [ "$total" -gt 3 ]; then`},
		{"a.sh", `[ "$total" = x ]`, `[ "$total" != x ]`},
		{"a.sh", `[ a = b ] && [ b = c ]`, `[ a = b ] || [ b = c ]`},
		{"a.sh", `x=$((total - 1))`, `x=$((total + 1))`},
		{"a.sh", `x=$((total))`, `x=$((total + 1))`},
		{"a.sh", `tail -n +3 x`, `tail -n +2 x`},
		{"a.sh", `head -n 8 x`, `head -n 7 x`},
		{"a.sh", `use "$total"`, `use "$size"`},
		{"a.sh", `use "$1"`, `use "$2"`},
		{"a.sh", `use $@`, `use "$@"`},
		{"a.sh", `echo "${x#*.}"`, `echo "${x##*.}"`},
		{"a.sh", `echo "${x%.*}"`, `echo "${x%%.*}"`},
		{"a.sh", `awk '{ print $2 }'`, `awk '{ print $3 }'`},
		{"a.go", "\t\tif i <= limit {\n\t\t\tbreak\n\t\t}", "\t\tif i < limit {\n\t\t\tbreak\n\t\t}"},
		{"a.go", "\t\tif ok && found {\n\t\t\tbreak\n\t\t}", "\t\tif ok || found {\n\t\t\tbreak\n\t\t}"},
		{"a.go", "\t\tx = list[a]", "\t\tx = list[a - 1]"},
		{"a.go", "\t\tx += a", "\t\tx -= a"},
		{"a.go", "\t\tx += a", "\t\tx = a"},
		{"a.go", "\t\tlist = list[1:]", "\t\tlist = list[0:]"},
	} {
		around := shellAround + "@\n"
		if strings.HasSuffix(c.name, ".go") {
			around = goAround
		}
		before, want := strings.Replace(around, "@", c.line, 1), strings.Replace(around, "@", c.want, 1)
		s := stateWith(map[string]string{c.name: before}, "FAIL")
		if !slices.Contains(results(s, c.name), want[:len(want)-1]) {
			t.Errorf("%s: nothing makes\n\t%s\nof\n\t%s", c.name, c.want, c.line)
		}
	}
}

// results are the texts that one change can make of a file.
func results(s *state, name string) (texts []string) {
	f := s.files[name]
	for line, mutable := range f.derive().mutable {
		if !mutable {
			continue
		}
		for _, m := range f.changes(line).list {
			texts = append(texts, strings.Join(m.change.apply(f.lines), "\n"))
		}
	}
	return texts
}

// FuzzMutations: any text can be worked on; every change differs from the file, and its edit can be found and undone.
func FuzzMutations(f *testing.F) {
	f.Add("a.sh", "if [ \"$x\" -gt 3 ]; then\n  sed 's/a/b/' | sort -n\nfi")
	f.Add("a.go", "package p\n\nfunc f(a int) int {\n\treturn a + 1\n}")
	f.Add("a.py", "def f(a):\n    return a[1:] and (b or 'c')")
	f.Add("x", "#!/bin/sh\n${${$((((((\"'")
	f.Fuzz(func(t *testing.T, name, body string) {
		if len(body) > 2000 {
			return
		}
		s := stateWith(map[string]string{name: body}, "FAIL: "+body)
		file := s.files[name]
		if file == nil || !file.read || file.language() == prose {
			return
		}
		for line := range file.lines {
			if !file.derive().mutable[line] {
				continue
			}
			for _, m := range file.changes(line).list {
				after := m.change.apply(file.lines)
				if slices.Equal(after, file.lines) {
					t.Fatalf("%s %s changes nothing", m.op, m.detail)
				}
				checkEdit(t, m.change, file.lines, after)
				checkEdit(t, m.change.invert(file.lines), after, file.lines)
			}
		}
	})
}

// checkEdit: the texts of an edit do to the text of the file what the change does to its lines.
func checkEdit(t *testing.T, r replace, before, after []string) {
	t.Helper()
	old, replacement, ok := r.strings(before)
	if !ok {
		return
	}
	whole := strings.Join(before, "\n")
	if strings.Count(whole, old) != 1 {
		t.Fatalf("%q is not unique in %q", old, whole)
	}
	if got := strings.Replace(whole, old, replacement, 1); got != strings.Join(after, "\n") {
		t.Fatalf("the edit makes %q, want %q", got, strings.Join(after, "\n"))
	}
}
