package boundary

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// readers is what files of services keep, or take from their environment, to read the log by. In a
// cluster a follower may be behind, so a handler reads by its input's Log. One that had another
// reader at hand would read less than its input says, and say nothing of it.
var readers = map[string]string{
	// A submission has no position on the log of its run.
	"intake/chains.go": "Reader", "intake/sender.go": "Reader",
	"intake/service.go": "Reader Streams env.Log.Reader env.Log.Streams",
	// These have no inputs.
	"dashboard/book.go": "Reader", "dashboard/shelf.go": "Reader", "dashboard/service.go": "Reader env.Log.Reader",
	"gateway/service.go": "Reader env.Log.Reader",
	// The archiver seals by the bounds of a stream, and in rounds; the sampler
	// watches how full streams are.
	"archiver/service.go":   "Archive Streams env.Log.Archive env.Log.Streams",
	"querysampler/watch.go": "Reader env.Log.Reader",
	// The pool follows rollouts that are over, and routes are asked for without an input.
	"toolrunner/endings.go": "Reader", "toolrunner/service.go": "env.Log.Reader",
	"toolrunner/offer.go": "env.Log.Config",
}

// TestHandlersReadAtTheirInput: no service keeps a reader but in the files of that list, and no
// function anywhere that is given an input reads by anything but the input's Log.
func TestHandlersReadAtTheirInput(t *testing.T) {
	methods := readerMethods(t)
	unused := maps.Clone(readers)
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".." {
			return fs.SkipDir // what the demo and lanes make
		}
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		in, service := strings.CutPrefix(filepath.ToSlash(path), "../../services/")
		if !strings.HasPrefix(in, "intake/") && !strings.HasPrefix(in, "archiver/") {
			for _, name := range readsBeside(file, methods) {
				t.Errorf("%s: a function with an input reads by %s", path, name)
			}
		}
		if !service || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(in, "servicetest/") {
			return nil
		}
		if kept := strings.Join(keptReaders(file, methods), " "); kept != readers[in] {
			t.Errorf("%s keeps %q to read the log by, not %q", path, kept, readers[in])
		}
		delete(unused, in)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for path := range unused {
		t.Errorf("there is no services/%s: take it from the list", path)
	}
}

// TestReadersAreFound shows that both rules can be broken.
func TestReadersAreFound(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "x.go", `package x
		type service struct { log eventlog.Reader; store storage.Store; sealing eventlog.Archive }
		var all eventlog.Reader
		func start(env pipeline.Env) { env.Log.Store(); env.Log.Conn(); begin(env.Log.Reader); s.env.Log.Config(ctx, "r") }
		func (s *service) Handle(ctx context.Context, m pipeline.Message) { m.Log.Rollout(ctx, r, id); s.log.Rollout(ctx, r, id); s.log.Store() }
		func serve(env pipeline.Env) {
			handle(func(ctx context.Context, m pipeline.Message) { m.Log.Config(ctx, r); env.Log.Last(ctx, r, k, e) })
			env.Log.All(ctx, r, 1)
		}`, 0)
	if err != nil {
		t.Fatal(err)
	}
	methods := readerMethods(t)
	kept := []string{"Archive", "Reader", "env.Log.All", "env.Log.Config", "env.Log.Last", "env.Log.Reader"}
	if got := keptReaders(file, methods); !slices.Equal(got, kept) {
		t.Errorf("kept are %q", got)
	}
	if got := readsBeside(file, methods); !slices.Equal(got, []string{"s.log.Rollout", "env.Log.Last"}) {
		t.Errorf("reads are %q", got)
	}
}

// readerMethods are those of a Reader that read the log.
func readerMethods(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("../../events/eventlog/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil || !f.Name.IsExported() || f.Name.Name == "Store" {
				continue
			}
			if of, ok := f.Recv.List[0].Type.(*ast.Ident); ok && of.Name == "Reader" {
				names = append(names, f.Name.Name)
			}
		}
	}
	if len(names) < 20 || !slices.Contains(names, "Rollout") {
		t.Fatalf("the methods of a Reader are %q", names)
	}
	return names
}

// keptReaders are the fields and variables of a file that are parts of the log which read, and what
// it takes from its environment.
func keptReaders(file *ast.File, methods []string) (kept []string) {
	parts := []string{"Reader", "Archive", "Streams", "Restorer"}
	keep := func(e ast.Expr) {
		if s, ok := e.(*ast.SelectorExpr); ok && nameOf(s.X) == "eventlog" && slices.Contains(parts, s.Sel.Name) {
			kept = append(kept, s.Sel.Name)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StructType:
			for _, field := range n.Fields.List {
				keep(field.Type)
			}
		case *ast.ValueSpec:
			keep(n.Type)
		case *ast.SelectorExpr:
			log, ok := n.X.(*ast.SelectorExpr)
			if ok && log.Sel.Name == "Log" && nameOf(log.X) == "env" &&
				(slices.Contains(parts, n.Sel.Name) || slices.Contains(methods, n.Sel.Name)) {
				kept = append(kept, "env.Log."+n.Sel.Name)
			}
		}
		return true
	})
	slices.Sort(kept)
	return slices.Compact(kept)
}

// readsBeside are the calls by which functions that are given an input read the log,
// but not by the input's Log.
func readsBeside(file *ast.File, methods []string) (found []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		var t *ast.FuncType
		var body *ast.BlockStmt
		switch f := n.(type) {
		case *ast.FuncDecl:
			t, body = f.Type, f.Body
		case *ast.FuncLit:
			t, body = f.Type, f.Body
		}
		if body == nil {
			return true
		}
		input, ok := inputOf(t)
		if !ok {
			return true
		}
		ast.Inspect(body, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains(methods, method.Sel.Name) {
				return true
			}
			if log, ok := method.X.(*ast.SelectorExpr); ok && strings.EqualFold(log.Sel.Name, "log") &&
				nameOf(log.X) != input {
				found = append(found, nameOf(log.X)+"."+log.Sel.Name+"."+method.Sel.Name)
			}
			return true
		})
		return true
	})
	return found
}

// inputOf is the name of the input that a function is given.
func inputOf(t *ast.FuncType) (name string, ok bool) {
	for _, p := range t.Params.List {
		if s, is := p.Type.(*ast.SelectorExpr); is && nameOf(s.X) == "pipeline" &&
			s.Sel.Name == "Message" && len(p.Names) == 1 {
			return p.Names[0].Name, true
		}
	}
	return "", false
}

// nameOf is the last word of an expression: env of s.env.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
