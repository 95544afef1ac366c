// Package sources holds the sources to the rules that gofmt does not check, in a second.
package sources

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// A line of code has at most so many columns, and one of prose fewer: a tab has four.
const (
	columns      = 120
	proseColumns = 100
)

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
		case entry.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, problem := range longLines(text) {
			t.Errorf("%s:%s", path, problem)
		}
		if strings.HasSuffix(path, "_test.go") {
			return nil
		}
		checked++
		file, files := parse(t, text)
		for _, problem := range undocumented(files, file) {
			t.Errorf("%s:%s", path, problem)
		}
		relative, _ := filepath.Rel("../..", path)
		for _, name := range unsearchable(file) {
			if !slices.ContainsFunc(unrenamed, func(p string) bool { return strings.HasPrefix(relative+" "+name, p) }) {
				t.Errorf("%s: %s is a preposition or a participle: take a noun or a verb of the field, which can be searched for", path, name)
			}
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

// longLines lists the lines that a reader has to scroll for. Long strings stay whole, so that they
// can be searched for, and so do the figures of comments, which are indented.
func longLines(text []byte) (problems []string) {
	strs := longStrings(text)
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line = strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "    ")
		n, most := utf8.RuneCountInString(line), columns
		if comment, ok := strings.CutPrefix(strings.TrimSpace(line), "//"); ok {
			most = proseColumns
			if strings.HasPrefix(comment, "  ") || strings.Count(strings.TrimSpace(comment), " ") == 0 {
				continue
			}
		}
		if n > most && !strs[number] && !strings.Contains(line, "//nolint") {
			problems = append(problems, fmt.Sprintf("%d: the line has %d columns, and %d are allowed: wrap it", number,
				n, most))
		}
	}
	return problems
}

// longStrings are the lines that hold a string of many columns, or a part of
// one that has several lines.
func longStrings(text []byte) map[int]bool {
	lines := map[int]bool{}
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	for {
		pos, kind, literal := s.Scan()
		if kind == token.EOF {
			return lines
		}
		if kind != token.STRING || len(literal) < 40 && !strings.Contains(literal, "\n") {
			continue
		}
		for i := range strings.Count(literal, "\n") + 1 {
			lines[file.Line(pos)+i] = true
		}
	}
}

// parse reads a file.
func parse(t *testing.T, text []byte) (*ast.File, *token.FileSet) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return file, files
}

// bare are words that say nothing alone, as the name of a function, a method, a type, a package's
// variable or constant. Parameters, fields and variables within functions may have such names.
var bare = strings.Fields(`of at in on by to from for with within without before after above below behind beside between among around about along across
	against into inside outside over past per since through till toward under until up upon via off out near beneath beyond
	known said held told asked given taken made seen gone found kept lost meant moved rested shown sent stood spent left done wanted`)

// unrenamed are folders, or single names in a file, that have such names still.
var unrenamed = []string{
	"bench/", "events/eventlog/", "services/gateway/", "tests/",
	"events/natstest/line.go Left", "events/rollout.go Over", "events/topology/topology.go For",
	"events/workspace.go Left", "events/workspace.go Taken",
	"index/words/words.go Of", "inference/chat.go Done", "inference/fleet/fleet.go Done",
}

// unsearchable lists what a file declares by such names.
func unsearchable(file *ast.File) (names []string) {
	var declared []*ast.Ident
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			declared = append(declared, d.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					declared = append(declared, spec.Name)
				case *ast.ValueSpec:
					declared = append(declared, spec.Names...)
				}
			}
		}
	}
	for _, id := range declared {
		if slices.Contains(bare, strings.ToLower(id.Name)) {
			names = append(names, id.Name)
		}
	}
	return names
}

// undocumented lists the exported functions, types and single values without a comment.
func undocumented(files *token.FileSet, file *ast.File) (problems []string) {
	check := func(name *ast.Ident, docs ...*ast.CommentGroup) {
		if name.IsExported() && !slices.ContainsFunc(docs, func(d *ast.CommentGroup) bool { return d != nil }) {
			problems = append(problems, fmt.Sprintf("%d: say in a comment what %s is", files.Position(name.Pos()).Line,
				name.Name))
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
		"long prose":          {"package p\n\n// a " + strings.Repeat("ä", proseColumns-4) + "\n", 1},
		"prose":               {"package p\n\n// a " + strings.Repeat("ä", proseColumns-5) + "\n", 0},
		"figure":              {"package p\n\n//   a " + strings.Repeat("ä", proseColumns) + "\n", 0},
		"long code":           {"package p\n\nvar a = 1" + strings.Repeat(" + a", columns/4) + "\n", 1},
		"code":                {"package p\n\nvar a = 1" + strings.Repeat(" + a", columns/4-3) + "\n", 0},
		"long string":         {"package p\n\nvar a = \"" + strings.Repeat("ä", columns) + "\"\n", 0},
		"short strings":       {"package p\n\nvar a = " + strings.Repeat("\"a\" + ", columns/5) + "\"\"\n", 1},
		"lines of a string":   {"package p\n\nvar a = `\n" + strings.Repeat("ä", columns+1) + "\n`\n", 0},
		"bare names":          {"package p\n\nvar held, size int\n\ntype kept struct{ known int }\n\nfunc (k kept) of() int { at := 1; return at }\n\nconst gone = 1\n", 4},
	} {
		t.Run(name, func(t *testing.T) {
			file, files := parse(t, []byte(c.text))
			if got := slices.Concat(longLines([]byte(c.text)), undocumented(files, file),
				unsearchable(file)); len(got) != c.want {
				t.Errorf("found %q, want %d problems", got, c.want)
			}
		})
	}
}
