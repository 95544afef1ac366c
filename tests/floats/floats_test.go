// Package floats holds the packages whose floats reach facts to arithmetic that gives the same
// bits on every processor.
//
// A compiler may fuse a product with a sum that it goes into, also across statements, and round
// once instead of twice: Go does on arm64 and not on amd64. An explicit conversion of the product
// forbids that, so every product is converted: float64(x*y) + z. Functions of package math beyond
// the exact ones differ between processors, too.
package floats

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fusible tells whether what takes a product may add to it. Factors,
// divisors and comparisons do not.
func fusible(op token.Token) bool { return op == token.ADD || op == token.SUB }

// packages are those whose floats reach facts, batches and trajectories.
var packages = []string{
	"advantage/...", "events", "events/eventlog", "events/runfile", "books", "pipeline", "storage", "weights",
	"services/advantagecalculator", "services/gateway/...", "services/generator", "services/intake",
	"services/querysampler",
	"services/scorer", "services/toolrunner", "services/trainerfeeder", "services/weightpublisher",
}

// exact are the functions of package math whose results follow from their
// arguments on every processor.
var exact = []string{
	"Abs", "Ceil", "Copysign", "Float32bits", "Float32frombits", "Float64bits", "Float64frombits", "Floor", "FMA",
	"Inf", "IsInf", "IsNaN",
	"Max", "Min", "Mod", "Modf", "NaN", "Nextafter", "Round", "RoundToEven", "Signbit", "Sqrt", "Trunc",
}

// findings are the places in a package where a result may depend on the processor.
func findings(files []*ast.File, fset *token.FileSet, info *types.Info) (found []string) {
	report := func(node ast.Node, format string, args ...any) {
		at := fset.Position(node.Pos())
		found = append(found, fmt.Sprintf("%s:%d: ", at.Filename, at.Line)+fmt.Sprintf(format, args...))
	}
	isFloat := func(e ast.Expr) bool {
		value := info.Types[e]
		if value.Value != nil || value.Type == nil {
			return false // constants are exact
		}
		basic, ok := value.Type.Underlying().(*types.Basic)
		return ok && basic.Info()&(types.IsFloat|types.IsComplex) != 0
	}
	for _, file := range files {
		rounded := map[ast.Expr]bool{} // by a conversion, or by what takes it alone
		ast.Inspect(file, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.CallExpr:
				if info.Types[n.Fun].IsType() && len(n.Args) == 1 && isFloat(n) {
					rounded[ast.Unparen(n.Args[0])] = true
				}
			case *ast.BinaryExpr:
				if !fusible(n.Op) {
					rounded[ast.Unparen(n.X)], rounded[ast.Unparen(n.Y)] = true, true
				}
				if n.Op == token.MUL && isFloat(n) && !rounded[n] {
					report(n, "a product without a conversion: write float64(x*y)")
				}
			case *ast.AssignStmt:
				if n.Tok == token.MUL_ASSIGN && isFloat(n.Lhs[0]) {
					report(n, "a product without a conversion: write x = float64(x*y)")
				}
			case *ast.SelectorExpr:
				f, ok := info.Uses[n.Sel].(*types.Func)
				if ok && f.Pkg() != nil && f.Pkg().Path() == "math" && !slices.Contains(exact, f.Name()) {
					report(n, "math.%s differs between processors", f.Name())
				}
			}
			return true
		})
	}
	return found
}

// listed is what go list says of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool
}

func TestFloatsAreTheSameEverywhere(t *testing.T) {
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,DepOnly"}
	for _, name := range packages {
		args = append(args, "github.com/rondo-rl/rondo/"+name)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	exports, checked := map[string]string{}, []listed{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly {
			checked = append(checked, p)
		}
	}
	if len(checked) < len(packages) {
		t.Fatalf("%d packages for %d patterns", len(checked), len(packages))
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser,
		error) {
		return os.Open(exports[path])
	})
	for _, p := range checked {
		var sources []string
		for _, name := range p.GoFiles {
			sources = append(sources, filepath.Join(p.Dir, name))
		}
		for _, finding := range check(t, fset, imports, p.ImportPath, sources, nil) {
			t.Error(finding)
		}
	}
}

func check(t *testing.T, fset *token.FileSet, imports types.Importer, path string,
	names []string, source any) []string {
	t.Helper()
	var files []*ast.File
	for _, name := range names {
		file, err := parser.ParseFile(fset, name, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: imports}
	if _, err := config.Check(path, fset, files, info); err != nil {
		t.Fatal(err)
	}
	return findings(files, fset, info)
}

// TestFindings shows that the rule is one that can be broken.
func TestFindings(t *testing.T) {
	for name, c := range map[string]struct {
		code string
		want int
	}{
		"a fused sum":              {"func f(x, y, z float64) float64 { return x*y + z }", 1},
		"a product that is stored": {"func f(x, y, z float64) float64 { t := x * y; return t + z }", 1},
		"a product that is given":  {"func f(x, y float64) float64 { return x * y }", 1},
		"a product in place":       {"func f(x, y float64) float64 { x *= y; return x }", 1},
		"float32 and named types":  {"type share float32\nfunc f(x, y share) share { return x * y }", 1},
		"a product of two":         {"func f(x, y float64) float64 { return float64(x*y*y) }", 0},
		"a quotient of a product":  {"func f(x, y, z float64) float64 { return x*y/z + z }", 0},
		"a sum of such":            {"func f(x, y, z float64) float64 { return (x + y*y) / z }", 1},
		"rounded":                  {"func f(x, y, z float64) float64 { return float64(x*y) + float64((x*z)) }", 0},
		"constants":                {"const c = 2.5 * 3.5\nfunc f() float64 { return c }", 0},
		"whole numbers":            {"func f(x, y int) int { return x*y + x }", 0},
		"quotients and sums":       {"func f(x, y float64) float64 { return x/y + y - x }", 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := check(t, token.NewFileSet(), nil, "p", []string{"p.go"}, "package p\n\n"+c.code)
			if len(got) != c.want {
				t.Errorf("%q, want %d", got, c.want)
			}
		})
	}
}
