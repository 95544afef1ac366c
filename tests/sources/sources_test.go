// Package sources holds the sources to the rules that gofmt does not check, in a second.
package sources

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// columns is how long a line may be. Tests may have longer ones: their tables have a case on each line.
const columns = 200

// interfaces are methods whose documentation is that of the interface.
var interfaces = []string{"Error", "Unwrap", "String", "MarshalJSON", "UnmarshalJSON", "Set", "Type"}

func TestSources(t *testing.T) {
	checked := 0
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && entry.Name() != "..":
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		checked++
		for _, problem := range append(longLines(string(text)), undocumented(t, text)...) {
			t.Errorf("%s:%s", path, problem)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked < 400 {
		t.Errorf("only %d files were checked", checked)
	}
}

// longLines lists the lines that a reader has to scroll for.
func longLines(text string) (problems []string) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > columns {
			problems = append(problems, fmt.Sprintf("%d: the line has %d columns, and %d are allowed: wrap it", number, n, columns))
		}
	}
	return problems
}

// undocumented lists the exported functions, types and single values without a comment.
func undocumented(t *testing.T, text []byte) (problems []string) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	check := func(name *ast.Ident, docs ...*ast.CommentGroup) {
		if name.IsExported() && !slices.ContainsFunc(docs, func(d *ast.CommentGroup) bool { return d != nil }) {
			problems = append(problems, fmt.Sprintf("%d: say in a comment what %s is", files.Position(name.Pos()).Line, name.Name))
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || exportedReceiver(d.Recv.List[0].Type) && !slices.Contains(interfaces, d.Name.Name) {
				check(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					check(spec.Name, d.Doc, spec.Doc)
				case *ast.ValueSpec:
					if !d.Lparen.IsValid() {
						check(spec.Names[0], d.Doc)
					}
				}
			}
		}
	}
	return problems
}

// exportedReceiver says whether a method belongs to an exported type.
func exportedReceiver(receiver ast.Expr) bool {
	switch r := receiver.(type) {
	case *ast.StarExpr:
		return exportedReceiver(r.X)
	case *ast.IndexExpr:
		return exportedReceiver(r.X)
	case *ast.IndexListExpr:
		return exportedReceiver(r.X)
	case *ast.Ident:
		return r.IsExported()
	}
	return false
}

// TestTheRulesFind shows that the rules above can be broken.
func TestTheRulesFind(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want int
	}{
		"documented":          {"package p\n\n// F does something.\nfunc F() {}\n", 0},
		"function":            {"package p\n\nfunc F() {}\n", 1},
		"method":              {"package p\n\n// T is a type.\ntype T[A any] struct{}\n\nfunc (t *T[A]) F() {}\n", 1},
		"method of interface": {"package p\n\n// T is a type.\ntype T struct{}\n\nfunc (T) String() string { return \"\" }\n", 0},
		"unexported":          {"package p\n\ntype t struct{}\n\nfunc (t) F() {}\n", 0},
		"type":                {"package p\n\ntype T struct{}\n", 1},
		"value":               {"package p\n\nvar V = 1\n", 1},
		"long line":           {"package p\n\n// " + strings.Repeat("ä", columns-2) + "\n", 1},
		"line":                {"package p\n\n// " + strings.Repeat("ä", columns-3) + "\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := append(longLines(c.text), undocumented(t, []byte(c.text))...); len(got) != c.want {
				t.Errorf("found %q, want %d problems", got, c.want)
			}
		})
	}
}
