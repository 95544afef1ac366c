package readme

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
)

var rewrite = flag.Bool("rewrite", false, "write the diagram into ARCHITECTURE.md")

// documents are the files that this package's tests hold to the truth.
func documents(t *testing.T) []string {
	t.Helper()
	list := []string{"README.md", "ARCHITECTURE.md", "CHANGELOG.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") {
			relative, _ := filepath.Rel(root, path)
			list = append(list, relative)
		}
		return err
	})
	if err != nil || len(list) < 5 {
		t.Fatalf("documents %v: %v", list, err)
	}
	return list
}

// TestDiagram: the diagram in ARCHITECTURE.md is the topology table's. After a change of the table:
//
//	go test ./tests/readme -run Diagram -rewrite
func TestDiagram(t *testing.T) {
	const begin, end = "<!-- diagram -->\n```mermaid\n", "```\n<!-- /diagram -->"
	path := filepath.Join(root, "ARCHITECTURE.md")
	text := read(t, path)
	before, rest, found := strings.Cut(text, begin)
	drawn, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatal("ARCHITECTURE.md has no place for the diagram")
	}
	if drawn == events.Diagram() {
		return
	}
	if !*rewrite {
		t.Fatal("the diagram in ARCHITECTURE.md is not that of events/topology.go: go test ./tests/readme -run Diagram -rewrite")
	}
	if err := os.WriteFile(path, []byte(before+begin+events.Diagram()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestExcerpts: what README.md shows of an example stands in the example.
func TestExcerpts(t *testing.T) {
	readme := read(t, filepath.Join(root, "README.md"))
	found := 0
	for _, c := range []struct{ block, file string }{
		{"```python\nstep = ", "examples/trainer.py"},
		{"```yaml\npolicy: ", "examples/run.yaml"},
	} {
		_, rest, ok := strings.Cut(readme, c.block)
		excerpt, _, _ := strings.Cut(rest, "```")
		_, head, _ := strings.Cut(c.block, "\n")
		if !ok || !strings.Contains(read(t, filepath.Join(root, c.file)), head+excerpt) {
			t.Errorf("README.md shows what is not in %s", c.file)
			continue
		}
		found++
	}
	if found != 2 {
		t.Errorf("%d excerpts", found)
	}
}

var link = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)

// TestLinks: links within the repository lead somewhere.
func TestLinks(t *testing.T) {
	for _, document := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, filepath.Join(root, document)), -1) {
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(document), m[1])); err != nil {
				t.Errorf("%s: %v", document, err)
			}
		}
	}
}

var (
	namedTest = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]+)`")
	namedFile = regexp.MustCompile("`((?:advantage|cmd|deploy|docs|events|examples|policy|sandbox|schemas|services|storage|tasks|tests|tools|weights)/[A-Za-z0-9_./-]*)`")
)

// TestNamesExist: tests and files that documents name exist.
func TestNamesExist(t *testing.T) {
	tests := declaredTests(t)
	named := 0
	for _, document := range documents(t) {
		text := read(t, filepath.Join(root, document))
		for _, m := range namedTest.FindAllStringSubmatch(text, -1) {
			named++
			if !tests[m[1]] {
				t.Errorf("%s names %s, which is not there", document, m[1])
			}
		}
		for _, m := range namedFile.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s: %v", document, err)
			}
		}
	}
	if named < 10 {
		t.Errorf("the documents name %d tests", named)
	}
}

var declaredTest = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)

// declaredTests are the names of all tests of the repository.
func declaredTests(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			for _, m := range declaredTest.FindAllStringSubmatch(read(t, path), -1) {
				names[m[1]] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestDependencies: ARCHITECTURE.md says of each direct dependency what it is for.
func TestDependencies(t *testing.T) {
	text := read(t, filepath.Join(root, "ARCHITECTURE.md"))
	direct := 0
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(read(t, filepath.Join(root, "go.mod")), -1) {
		direct++
		if !strings.Contains(text, "`"+m[1]+"`") {
			t.Errorf("ARCHITECTURE.md does not say what %s is for", m[1])
		}
	}
	if direct < 10 {
		t.Errorf("go.mod has %d direct dependencies", direct)
	}
}
