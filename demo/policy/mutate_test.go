package policy

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
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

// TestOperatorsReach lists, for each kind of small change, a line and what an operator
// must be able to make of it.
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

// TestPacksCanBeRepaired: one change after the other, as many as lines differ, turns each program
// of the packs into its solution. The two programs in Python need more than an exchange.
func TestPacksCanBeRepaired(t *testing.T) {
	for _, pack := range []string{"small", "sample", "large"} {
		tasks, err := filepath.Glob(filepath.Join("..", "packs", pack, "*"))
		if err != nil || len(tasks) == 0 {
			t.Fatalf("%d tasks: %v", len(tasks), err)
		}
		for _, task := range tasks {
			if strings.HasPrefix(filepath.Base(task), "python-") {
				continue
			}
			repositories, err := filepath.Glob(filepath.Join(task, "environment", "*repo"))
			if err != nil || len(repositories) != 1 {
				t.Fatalf("%s: %d repositories: %v", task, len(repositories), err)
			}
			solution, err := os.ReadFile(filepath.Join(task, "solution", "solve.sh"))
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(repositories[0])); err != nil {
				t.Fatal(err)
			}
			solve := exec.Command("sh", "-c", string(solution))
			solve.Dir = dir
			if out, err := solve.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", task, err, out)
			}
			solved, changed := texts(t, dir), 0
			for name, before := range texts(t, repositories[0]) {
				after := solved[name]
				if after == before {
					continue
				}
				changed++
				if !repairable(name, splitLines(before), splitLines(after)) {
					t.Errorf("%s: no changes make the solution of %s", task, name)
				}
			}
			if changed != 1 {
				t.Errorf("%s: the solution changes %d files", task, changed)
			}
		}
	}
}

// texts are the files of a folder.
func texts(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		found[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// repairable tells whether changes lead from one text of a file to the other: at most two
// in each line that differs.
func repairable(name string, before, after []string) bool {
	if len(before) != len(after) {
		return false
	}
	for line := range before {
		if before[line] != after[line] && !reaches(name, before, line, after[line], 2) {
			return false
		}
	}
	return true
}

// reaches tells whether so many changes make a line what it is to be.
func reaches(name string, lines []string, line int, want string, most int) bool {
	f := stateWith(map[string]string{name: strings.Join(lines, "\n")}, "FAIL").files[name]
	if !f.derive().mutable[line] || most == 0 {
		return false
	}
	for _, m := range f.changes(line).list {
		if m.change.with[0] == want || reaches(name, m.change.apply(lines), line, want, most-1) {
			return true
		}
	}
	return false
}

// FuzzMutations: any text can be worked on; every change differs from the file, and its edit
// can be found and undone.
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
