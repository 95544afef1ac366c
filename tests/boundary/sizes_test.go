package boundary

import (
	"bytes"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Limits of what a reader takes in at once. What is over them most often has a second subject.
const (
	maxLines        = 450   // of a file, tests too
	maxFiles        = 30    // of a package, without tests
	maxPackageLines = 4_000 // without tests
)

// A package over the limits gives its reason in its comment.
const reasonWords = "Large because "

// size is what a package has.
type size struct {
	name, doc string
	files     map[string]int // lines by name, generated ones left out
}

// generated is how Go tools mark files that nobody writes by hand.
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func TestFilesAndPackagesAreSmall(t *testing.T) {
	looked := 0
	for _, p := range packages(t) {
		s := size{name: strings.TrimPrefix(p.ImportPath, module), files: map[string]int{}}
		for _, name := range slices.Concat(p.GoFiles, p.CgoFiles, p.IgnoredGoFiles, p.TestGoFiles, p.XTestGoFiles) {
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.PackageClauseOnly|parser.ParseComments); err == nil && file.Doc != nil {
				s.doc += file.Doc.Text()
			}
			if !generated.Match(text) {
				s.files[name] = bytes.Count(text, []byte("\n"))
			}
			looked++
		}
		for _, fault := range s.faults() {
			t.Error(fault)
		}
	}
	if looked < 500 {
		t.Errorf("only %d files were looked at", looked)
	}
}

// faults are the limits that a package is over.
func (s size) faults() (list []string) {
	files, lines := 0, 0
	for name, n := range s.files {
		if n > maxLines {
			list = append(list, fmt.Sprintf("%s/%s has %d lines (limit %d): divide it by subject", s.name, name, n, maxLines))
		}
		if !strings.HasSuffix(name, "_test.go") {
			files, lines = files+1, lines+n
		}
	}
	if large := files > maxFiles || lines > maxPackageLines; large != strings.Contains(s.doc, reasonWords) {
		if large {
			list = append(list, fmt.Sprintf("%s has %d files (limit %d) and %d lines (limit %d): find its second subject, or give the reason in its package comment: %q", s.name, files, maxFiles, lines, maxPackageLines, reasonWords+"…"))
		} else {
			list = append(list, fmt.Sprintf("%s is not large: its comment need not give a reason", s.name))
		}
	}
	return list
}

// TestTheSizesRefuse shows that each limit can be broken.
func TestTheSizesRefuse(t *testing.T) {
	many, long, tests := map[string]int{}, map[string]int{}, map[string]int{}
	for i := range maxFiles + 1 {
		many[fmt.Sprintf("f%d.go", i)] = 1
		tests[fmt.Sprintf("f%d_test.go", i)] = maxLines
	}
	for i := range 10 {
		long[fmt.Sprintf("f%d.go", i)] = maxPackageLines/10 + 1
	}
	for name, c := range map[string]struct {
		size   size
		faults int
	}{
		"small":                  {size{files: map[string]int{"a.go": maxLines}}, 0},
		"a long file":            {size{files: map[string]int{"a.go": maxLines + 1}}, 1},
		"a long test":            {size{files: map[string]int{"a_test.go": maxLines + 1}}, 1},
		"many files":             {size{files: many}, 1},
		"many lines":             {size{files: long}, 1},
		"many tests":             {size{files: tests}, 0},
		"many for a reason":      {size{doc: "Package a.\n\n" + reasonWords + "so.", files: many}, 0},
		"a reason for no excess": {size{doc: reasonWords + "so.", files: map[string]int{"a.go": 1}}, 1},
	} {
		if got := c.size.faults(); len(got) != c.faults {
			t.Errorf("%s: %q", name, got)
		}
	}
}
