package canary

import (
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"strings"
)

// golang lists the sites of a Go file of tests: comparisons that decide whether a test fails. Each
// stands where a test that passes has come to it, and is false there, so that its opposite fails.
func golang(_, source string) (sites []foundSite) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil
	}
	for _, declaration := range file.Decls {
		f, ok := declaration.(*ast.FuncDecl)
		if !ok || f.Recv != nil || f.Body == nil || !strings.HasPrefix(f.Name.Name, "Test") {
			continue
		}
		w := goWalk{files: files}
		w.statements(f.Body.List)
		for _, s := range w.sites {
			s.function = f.Name.Name
			sites = append(sites, s)
		}
	}
	return sites
}

type goWalk struct {
	files *token.FileSet
	sites []foundSite
}

// statements looks at those that are run one after the other, up to one that may leave them out.
func (w *goWalk) statements(list []ast.Stmt) {
	for _, statement := range list {
		switch s := statement.(type) {
		case *ast.IfStmt:
			if fails(s.Body) && s.Else == nil {
				w.condition(s.Cond)
			}
		case *ast.BlockStmt:
			w.statements(s.List)
		case *ast.RangeStmt: // of a table that stands in the test
			switch s.X.(type) {
			case *ast.Ident, *ast.CompositeLit:
				w.statements(s.Body.List)
			}
		case *ast.ExprStmt:
			if run, ok := s.X.(*ast.CallExpr); ok && method(run) == "Run" && len(run.Args) == 2 {
				if test, ok := run.Args[1].(*ast.FuncLit); ok {
					w.statements(test.Body.List)
				}
				continue
			}
		}
		if leaves(statement) {
			return
		}
	}
}

// condition takes the parts of a disjunction: with any of them turned round, the whole is
// true where it was false.
func (w *goWalk) condition(e ast.Expr) {
	switch x := e.(type) {
	case *ast.ParenExpr:
		w.condition(x.X)
	case *ast.BinaryExpr:
		opposite := map[token.Token]string{token.NEQ: "==", token.EQL: "!=", token.LSS: ">=", token.GEQ: "<",
			token.GTR: "<=", token.LEQ: ">"}[x.Op]
		switch {
		case x.Op == token.LOR:
			w.condition(x.X)
			w.condition(x.Y)
		case opposite != "":
			w.add(x.OpPos, len(x.Op.String()), opposite)
		}
	case *ast.UnaryExpr:
		if x.Op == token.NOT {
			w.add(x.OpPos, 1, "")
		}
	case *ast.CallExpr, *ast.Ident, *ast.SelectorExpr:
		w.add(e.Pos(), 0, "!")
	}
}

// add adds the site of a piece that becomes another.
func (w *goWalk) add(pos token.Pos, length int, other string) {
	at := w.files.Position(pos)
	w.sites = append(w.sites, foundSite{
		line: at.Line - 1, start: at.Column - 1, end: at.Column - 1 + length,
		wrong: func(string, *rand.Rand) string { return other },
	})
}

// fails reports whether a body ends by saying that the test failed.
func fails(body *ast.BlockStmt) bool {
	if len(body.List) == 0 {
		return false
	}
	s, ok := body.List[len(body.List)-1].(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := s.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	switch method(call) {
	case "Error", "Errorf", "Fatal", "Fatalf", "Fail", "FailNow":
		return true
	}
	return false
}

// method is the name of a called method of t, "" for anything else.
func method(call *ast.CallExpr) string {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if receiver, ok := s.X.(*ast.Ident); !ok || receiver.Name != "t" {
		return ""
	}
	return s.Sel.Name
}

// leaves reports whether a statement may leave out what follows it.
func leaves(statement ast.Stmt) (out bool) {
	ast.Inspect(statement, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.ReturnStmt, *ast.BranchStmt:
			out = true
		case *ast.FuncLit:
			return false
		}
		return !out
	})
	return out
}
