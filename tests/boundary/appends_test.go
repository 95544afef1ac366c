package boundary

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// wholeLog are the names by which a file of a service could get at an Appender: the part itself,
// and the log that has it.
var wholeLog = []string{"Appender", "eventlog.Log", "eventlog.New"}

// TestServicesAppendNothing: services name the parts of the log that they use, and never the one
// that appends. Package pipeline appends what their handlers give.
func TestServicesAppendNothing(t *testing.T) {
	looked := 0
	err := filepath.WalkDir("../../services", func(path string, entry fs.DirEntry, err error) error {
		if entry != nil && entry.Name() == "servicetest" {
			return fs.SkipDir // it states for tests what others do
		}
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		looked++
		for _, name := range named(file) {
			t.Errorf("%s names %s", path, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if looked < 50 {
		t.Errorf("only %d files were looked at", looked)
	}
}

// named are the names of wholeLog that a file uses.
func named(file *ast.File) (names []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			name := s.Sel.Name
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "eventlog" && name != "Appender" {
				name = "eventlog." + name
			}
			if slices.Contains(wholeLog, name) {
				names = append(names, name)
			}
		}
		return true
	})
	return names
}

// TestAppendersAreFound shows that the rule above is one that can be broken.
func TestAppendersAreFound(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "x.go", `package x
		var a *eventlog.Log
		func f(r eventlog.Reader, to eventlog.Appender) { env.Log.Appender.Append(ctx, e); r.Last(ctx); slog.New(nil); keys.Seal(nil) }`, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := named(file); !slices.Equal(got, []string{"eventlog.Log", "Appender", "Appender"}) {
		t.Errorf("found %v", got)
	}
}
