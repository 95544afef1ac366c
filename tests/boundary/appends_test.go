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

// appending are the methods that put events on the log.
var appending = []string{"Append", "AppendLast", "AppendOnce", "Seal", "Restore", "ListRun"}

// TestServicesAppendNothing: the effect handlers of services give the events that package pipeline appends.
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
		for _, name := range appends(file) {
			t.Errorf("%s calls %s", path, name)
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

// appends names the methods of the log that a file calls to append.
func appends(file *ast.File) (names []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if method, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains(appending, method.Sel.Name) && onLog(method.X) {
			names = append(names, method.Sel.Name)
		}
		return true
	})
	return names
}

// onLog reports whether an expression is named as logs are: log, s.log, env.Log.
func onLog(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return strings.EqualFold(x.Name, "log")
	case *ast.SelectorExpr:
		return strings.EqualFold(x.Sel.Name, "log")
	}
	return false
}

// TestAppendsAreFound shows that the rule above is one that can be broken.
func TestAppendsAreFound(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "x.go", `package x
		func f() { s.log.Append(ctx, e); env.Log.AppendLast(ctx, e, nil); log.Seal(ctx, run, true); s.log.Last(ctx); keys.Seal(nil); append(a, b) }`, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := appends(file); !slices.Equal(got, []string{"Append", "AppendLast", "Seal"}) {
		t.Errorf("found %v", got)
	}
}
