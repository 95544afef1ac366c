package readme

import (
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events/topology"
)

var rewrite = flag.Bool("rewrite", false, "write what is generated into the documents")

// generated holds a part of a document, between the comments <!-- name --> and <!-- /name -->, to
// what is generated for it. With -rewrite it writes the part.
func generated(t *testing.T, document, name, want string) {
	t.Helper()
	begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->"
	path := filepath.Join(root, document)
	before, rest, found := strings.Cut(read(t, path), begin)
	part, after, closed := strings.Cut(rest, end)
	switch {
	case !found || !closed:
		t.Fatalf("%s has no part between %q and %q", document, begin, end)
	case part == want:
	case !*rewrite:
		t.Errorf("the part %q of %s is out of date: go test ./tests/readme -run '%s' -rewrite", name, document,
			t.Name())
	default:
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDiagram: the diagram of streams in ARCHITECTURE.md is that of the topology table.
func TestDiagram(t *testing.T) {
	generated(t, "ARCHITECTURE.md", "diagram", "```mermaid\n"+topology.Diagram()+"```\n")
}

// TestImportDiagram: the diagram of imports in ARCHITECTURE.md is that of the code.
func TestImportDiagram(t *testing.T) {
	graph := folderImports(t)
	if len(graph) < 10 {
		t.Fatalf("only %d folders import others", len(graph))
	}
	var diagram strings.Builder
	diagram.WriteString("```mermaid\nflowchart TD\n")
	for _, from := range slices.Sorted(maps.Keys(graph)) {
		var to []string
		for _, next := range slices.Sorted(maps.Keys(graph[from])) {
			if !follows(graph, from, next) {
				to = append(to, next)
			}
		}
		fmt.Fprintf(&diagram, "  %s --> %s\n", from, strings.Join(to, " & "))
	}
	generated(t, "ARCHITECTURE.md", "imports", diagram.String()+"```\n")
}

// TestFollows: an import is left out of the diagram only where another path
// leads to the same folder.
func TestFollows(t *testing.T) {
	graph := map[string]map[string]bool{"a": {"b": true, "c": true, "d": true}, "b": {"c": true}, "d": {"a": true}}
	for _, c := range []struct {
		from, to string
		want     bool
	}{{"a", "b", false}, {"a", "c", true}, {"b", "c", false}, {"a", "d", false}, {"d", "a", false}} {
		if got := follows(graph, c.from, c.to); got != c.want {
			t.Errorf("follows %s -> %s: %v", c.from, c.to, got)
		}
	}
}

// folderImports are the imports of each top-level folder, without those of tests and without tests,
// examples and development tools.
func folderImports(t *testing.T) map[string]map[string]bool {
	t.Helper()
	graph := map[string]map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		relative, _ := filepath.Rel(root, path)
		from, _, below := strings.Cut(filepath.ToSlash(relative), "/")
		if !below || slices.Contains([]string{"tests", "examples", "tools", "deploy", "clients"}, from) ||
			strings.HasPrefix(from, ".") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			imported, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), "github.com/rondo-rl/rondo/")
			to, _, _ := strings.Cut(imported, "/")
			if !ours || to == from || to == "tests" {
				continue
			}
			if graph[from] == nil {
				graph[from] = map[string]bool{}
			}
			graph[from][to] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return graph
}

// follows: another import of the folder leads to the same folder, on a path that does not
// come back to where it began.
func follows(graph map[string]map[string]bool, from, to string) bool {
	seen := map[string]bool{from: true}
	var reaches func(string) bool
	reaches = func(at string) bool {
		if at == to {
			return true
		}
		if seen[at] {
			return false
		}
		seen[at] = true
		for next := range graph[at] {
			if reaches(next) {
				return true
			}
		}
		return false
	}
	for next := range graph[from] {
		if next != to && reaches(next) {
			return true
		}
	}
	return false
}

// decisionHead is how a record begins: its number, its title, its chapter and its status.
var decisionHead = regexp.MustCompile(
	`^# (\d+)\. (.+)\n\n\*\*Chapter\.\*\* (.+)\. \*\*Status\.\*\* (Accepted|Superseded)`)

// TestDecisions: docs/decisions/README.md lists all records by chapter. Each record has the number
// of its file, a chapter, a status and at most 4 KiB. More than 40 nobody reads: a new one takes
// the place of one that is merged or no longer holds.
func TestDecisions(t *testing.T) {
	records, err := filepath.Glob(filepath.Join(root, "docs/decisions/[0-9]*.md"))
	if err != nil || len(records) < 10 || len(records) > 40 {
		t.Fatalf("%d records, and at most 40 are allowed: %v", len(records), err)
	}
	var list strings.Builder
	chapter := ""
	for i, path := range records {
		name, text := filepath.Base(path), read(t, path)
		head := decisionHead.FindStringSubmatch(text)
		if head == nil || len(text) > 4<<10 {
			t.Errorf("%s has %d bytes: want `# N. TITLE`, then `**Chapter.** NAME. **Status.** Accepted.`, and at most 4 KiB", name, len(text))
			continue
		}
		if head[1] != strconv.Itoa(i+1) || !strings.HasPrefix(name, fmt.Sprintf("%04d-", i+1)) {
			t.Errorf("%s has the number %s, and is record %d", name, head[1], i+1)
		}
		if head[3] != chapter {
			chapter = head[3]
			fmt.Fprintf(&list, "\n## %s\n\n", chapter)
		}
		fmt.Fprintf(&list, "- [%s. %s](%s)\n", head[1], head[2], name)
	}
	generated(t, "docs/decisions/README.md", "decisions", list.String())
}
