package observability_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the table of metrics anew")

// metric is one that the code defines.
type metric struct {
	name, kind, help string
	labels           []string
}

// kinds are the options that define a metric, by their type.
var kinds = map[string]string{"CounterOpts": "counter", "GaugeOpts": "gauge", "HistogramOpts": "histogram"}

// defined are the metrics that the code of services defines.
func defined(t *testing.T) map[string]metric {
	t.Helper()
	found := map[string]metric{}
	for _, folder := range []string{"services", "pipeline", "inference", "health", "cli", "events", "storage"} {
		err := filepath.WalkDir("../../"+folder, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					if m, ok := read(call); ok {
						found[m.name] = m
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// read reads prometheus.NewXVec(prometheus.XOpts{Name: …, Help: …}, []string{…}) and
// prometheus.NewDesc(name, help, []string{…}, nil), which is of a gauge.
func read(call *ast.CallExpr) (m metric, ok bool) {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return m, false
	}
	if f.Sel.Name == "NewDesc" {
		m = metric{name: text(call.Args[0]), kind: "gauge", help: text(call.Args[1]), labels: list(call.Args[2])}
		return m, m.name != ""
	}
	options, ok := call.Args[0].(*ast.CompositeLit)
	if !ok {
		return m, false
	}
	named, ok := options.Type.(*ast.SelectorExpr)
	if !ok || kinds[named.Sel.Name] == "" {
		return m, false
	}
	m.kind = kinds[named.Sel.Name]
	for _, e := range options.Elts {
		switch field := e.(*ast.KeyValueExpr); field.Key.(*ast.Ident).Name {
		case "Name":
			m.name = text(field.Value)
		case "Help":
			m.help = text(field.Value)
		}
	}
	if len(call.Args) > 1 {
		m.labels = list(call.Args[1])
	}
	return m, m.name != ""
}

// text is a literal, or several with + between them.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, _ := strconv.Unquote(e.Value)
		return s
	case *ast.BinaryExpr:
		return text(e.X) + text(e.Y)
	}
	return ""
}

func list(e ast.Expr) (texts []string) {
	if c, ok := e.(*ast.CompositeLit); ok {
		for _, element := range c.Elts {
			texts = append(texts, text(element))
		}
	}
	return texts
}

const page = "../../docs/guide/metrics.md"

// TestTableOfMetrics: the page lists each metric that the code defines, as it does.
func TestTableOfMetrics(t *testing.T) {
	t.Parallel()
	all := defined(t)
	if len(all) < 40 {
		t.Fatalf("only %d metrics were found", len(all))
	}
	var table strings.Builder
	table.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		m := all[name]
		if m.help == "" || strings.Contains(m.help, "|") {
			t.Errorf("the help of %s is %q", name, m.help)
		}
		labels := ""
		if len(m.labels) > 0 {
			labels = "`" + strings.Join(m.labels, "`, `") + "`"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", name, m.kind, labels, m.help)
	}
	old, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- metrics -->\n", "<!-- /metrics -->"
	before, rest, ok := strings.Cut(string(old), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no marks for the table", page)
	}
	if now := before + begin + table.String() + end + after; now != string(old) {
		if !*rewrite {
			t.Fatalf("%s differs from the code: go test ./tests/observability -run TableOfMetrics -rewrite", page)
		}
		if err := os.WriteFile(page, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
