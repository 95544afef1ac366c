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
		{"a.sh", `[ -z "$total" ] && return`, `[ -n "$total" ] && return`},
		{"a.sh", `[ -f "$total" ] && return`, `[ -d "$total" ] && return`},
		{"a.sh", `[ "$total" = x ]`, `[ "$total" != x ]`},
		{"a.sh", `[ a = b ] && [ b = c ]`, `[ a = b ] || [ b = c ]`},
		{"a.sh", `[ a = b ]`, `[ ! a = b ]`},
		{"a.sh", `x=$((total - 1))`, `x=$((total + 1))`},
		{"a.sh", `x=$((total - 1))`, `x=$((total))`},
		{"a.sh", `x=$((total))`, `x=$((total + 1))`},
		{"a.sh", `x=$((total - size))`, `x=$((size - total))`},
		{"a.sh", `x=$((total + size * 2))`, `x=$(((total + size) * 2))`},
		{"a.sh", `tail -n +3 x`, `tail -n +2 x`},
		{"a.sh", `head -n 8 x`, `head -n 7 x`},
		{"a.sh", `head -n 8 x`, `tail -n 8 x`},
		{"a.sh", `use "$total"`, `use "$size"`},
		{"a.sh", `use "$1"`, `use "$2"`},
		{"a.sh", `use $@`, `use "$@"`},
		{"a.sh", `use "$*"`, `use "$@"`},
		{"a.sh", `use '$total'`, `use "$total"`},
		{"a.sh", `count "$1"`, `other "$1"`},
		{"a.sh", `sort -r x`, `sort -n x`},
		{"a.sh", `sort -r x`, `sort -nr x`},
		{"a.sh", `sort -nr x`, `sort -n x`},
		{"a.sh", `sort x`, `sort -n x`},
		{"a.sh", `grep x y`, `grep -v x y`},
		{"a.sh", `read line`, `read -r line`},
		{"a.sh", `echo x > out`, `echo x >> out`},
		{"a.sh", `echo "${x#*.}"`, `echo "${x##*.}"`},
		{"a.sh", `echo "${x%.*}"`, `echo "${x%%.*}"`},
		{"a.sh", `echo "${x:-1}"`, `echo "${x:+1}"`},
		{"a.sh", `tr 'A-Z' 'a-z'`, `tr 'a-z' 'A-Z'`},
		{"a.sh", `cp one two`, `cp two one`},
		{"a.sh", `sed 's/a/b/'`, `sed 's/a/b/g'`},
		{"a.sh", `sed 's/a/b/g'`, `sed 's/^a/b/g'`},
		{"a.sh", `grep '^x'`, `grep '^x$'`},
		{"a.sh", `grep '[a-z]'`, `grep '[a-z0-9]'`},
		{"a.sh", `grep '[0-9]*'`, `grep '[^0-9]*'`},
		{"a.sh", `grep 'a.b'`, `grep 'a\.b'`},
		{"a.sh", `cut -d ',' -f 1`, `cut -d ':' -f 1`},
		{"a.sh", `awk '{ print $2 }'`, `awk '{ print $3 }'`},
		{"a.sh", `printf '%s'`, `printf '%s\n'`},
		{"a.sh", `sort x | uniq | wc -l`, `sort x | wc -l`},
		{"a.sh", `echo "four"`, `echo "three"`},
		{"a.sh", `while [ a ]; do`, `until [ a ]; do`},
		{"a.sh", `[ a ] || continue`, `[ a ] || break`},
		{"a.go", "\t\tif i <= limit {\n\t\t\tbreak\n\t\t}", "\t\tif i < limit {\n\t\t\tbreak\n\t\t}"},
		{"a.go", "\t\tif ok {\n\t\t\tbreak\n\t\t}", "\t\tif !ok {\n\t\t\tbreak\n\t\t}"},
		{"a.go", "\t\tif ok && found {\n\t\t\tbreak\n\t\t}", "\t\tif ok || found {\n\t\t\tbreak\n\t\t}"},
		{"a.go", "\t\tif err == nil {\n\t\t\tbreak\n\t\t}", "\t\tif err != nil {\n\t\t\tbreak\n\t\t}"},
		{"a.go", "\t\tx = list[a]", "\t\tx = list[a - 1]"},
		{"a.go", "\t\tx = low(a, b)", "\t\tx = low(b, a)"},
		{"a.go", "\t\tx = a - b", "\t\tx = b - a"},
		{"a.go", "\t\tx = limit", "\t\tx = width"},
		{"a.go", "\t\tx += a", "\t\tx -= a"},
		{"a.go", "\t\tx += a", "\t\tx = a"},
		{"a.go", "\t\tx = len(list)", "\t\tx = len(list) - 1"},
		{"a.go", "\t\tlist = list[1:]", "\t\tlist = list[0:]"},
		{"a.go", "\t\ttext = strings.TrimLeft(text, \" \")", "\t\ttext = strings.TrimRight(text, \" \")"},
		{"a.go", "\t\tx = strings.Index(text, \",\")", "\t\tx = strings.LastIndex(text, \",\")"},
		{"a.go", "\t\ttext += \",\"", "\t\ttext += \";\""},
		{"a.go", "\t\treturn a, err", "\t\treturn a, nil"},
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
		for _, m := range s.mutations(f, line) {
			texts = append(texts, strings.Join(m.change.apply(f.lines), "\n"))
		}
	}
	return texts
}

func TestLinesAreMovedAndDeleted(t *testing.T) {
	s := stateWith(map[string]string{"a.sh": "a=1\nb=2\nfor x in 1; do\n  c=3\ndone"}, "FAIL")
	got := results(s, "a.sh")
	for _, want := range []string{
		"b=2\nfor x in 1; do\n  c=3\ndone",
		"b=2\na=1\nfor x in 1; do\n  c=3\ndone",
		"a=1\nb=2\nfor x in 1; do\ndone\n  c=3",
		"a=1\nb=2\n  c=3\nfor x in 1; do\ndone",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("nothing makes\n%s", want)
		}
	}
}

// TestGoChangesCompile: what cannot compile is not proposed.
func TestGoChangesCompile(t *testing.T) {
	s := stateWith(map[string]string{
		"a.go": "package p\n\nfunc sum(list []int) int {\n\ttotal := 0\n\tfor _, n := range list {\n\t\ttotal -= n\n\t}\n\treturn total\n}",
		"b.go": "package p\n\nvar _ = sum(nil)",
	}, "FAIL")
	got := results(s, "a.go")
	if len(got) == 0 {
		t.Fatal("no changes")
	}
	for _, text := range got {
		for _, wrong := range []string{"total -= list", "return list", "range n", "total = 0\n", "-= total\n\t}\n\treturn n"} {
			if strings.Contains(text, wrong) {
				t.Errorf("proposed:\n%s", text)
			}
		}
	}
	if !slices.ContainsFunc(got, func(text string) bool { return strings.Contains(text, "total += n") }) {
		t.Error("the repair is missing")
	}
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
			for _, m := range s.mutations(file, line) {
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
