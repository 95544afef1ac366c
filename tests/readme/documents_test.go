package readme

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documents are the files that this package's tests hold to the truth.
func documents(t *testing.T) []string {
	t.Helper()
	list := []string{"README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"}
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

// TestSizes: README.md sells and starts, ARCHITECTURE.md is a map of two screens, and a page of the
// guide answers one question.
func TestSizes(t *testing.T) {
	for _, document := range documents(t) {
		limit := 8 << 10
		switch folder := filepath.Dir(document); {
		case document == "ARCHITECTURE.md":
			limit = 12 << 10
		case document != "README.md" && folder != "docs/guide":
			continue
		}
		if size := len(read(t, filepath.Join(root, document))); size > limit {
			t.Errorf("%s has %d bytes, more than %d: move what a user needs to docs/guide", document, size, limit)
		}
	}
}

// TestExcerpts: what a document shows of an example stands in the example. The lines of glue
// that a user writes are counted: tests of the Python client count those of an environment (15)
// and of a reward function (5).
func TestExcerpts(t *testing.T) {
	const any, trainer = 1000, 20
	for _, c := range []struct {
		document, block, file string
		lines                 int
	}{
		{"README.md", "```yaml\npolicy: ", "examples/run.yaml", any},
		{"docs/guide/engines.md", "```yaml\npolicy: ", "examples/run.yaml", any},
		{"docs/guide/trainers.md", "```python\nstep = ", "examples/trainer.py", trainer},
		{"docs/guide/trainers.md", "```python\n    def gap", "examples/torch_grpo/train.py", any},
	} {
		_, rest, ok := strings.Cut(read(t, filepath.Join(root, c.document)), c.block)
		excerpt, _, _ := strings.Cut(rest, "```")
		_, head, _ := strings.Cut(c.block, "\n")
		if !ok || !strings.Contains(read(t, filepath.Join(root, c.file)), head+excerpt) {
			t.Errorf("%s shows what is not in %s", c.document, c.file)
		}
		if lines := 1 + strings.Count(excerpt, "\n"); lines > c.lines {
			t.Errorf("%s shows %d lines of %s, more than %d", c.document, lines, c.file, c.lines)
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)

// others are documents beside the code that they are about.
var others = []string{"clients/python/README.md", "examples/grpo_llm/README.md", "examples/product/README.md",
	"examples/torch_grpo/README.md", "schemas/arrow.md", "tests/adapters/README.md", "tests/engines/README.md"}

// TestLinks: links within the repository lead to a file, and to a heading where they name one.
func TestLinks(t *testing.T) {
	for _, document := range append(documents(t), others...) {
		for _, m := range link.FindAllStringSubmatch(read(t, filepath.Join(root, document)), -1) {
			target := filepath.Join(root, filepath.Dir(document), m[1])
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", document, err)
				continue
			}
			if m[2] != "" && !headings(t, target)[m[2][1:]] {
				t.Errorf("%s: %s has no heading %s", document, m[1], m[2])
			}
		}
	}
}

var clientCall = regexp.MustCompile(`\b(?:client|feed|version)\.([a-z_]+)\(`)

// TestClientCalls: the documents call no method that the Python client does not have.
func TestClientCalls(t *testing.T) {
	var client strings.Builder
	for _, file := range []string{"sync.py", "versions.py"} {
		client.WriteString(read(t, filepath.Join(root, "clients/python/rondo", file)))
	}
	called := 0
	for _, document := range documents(t) {
		for _, m := range clientCall.FindAllStringSubmatch(read(t, filepath.Join(root, document)), -1) {
			called++
			if !strings.Contains(client.String(), "def "+m[1]+"(") {
				t.Errorf("%s calls %s, which the Python client does not have", document, m[0])
			}
		}
	}
	if called < 8 {
		t.Errorf("the documents call %d methods of the Python client", called)
	}
}

var notInAnchor = regexp.MustCompile("[^a-z0-9 _-]")

// headings are the anchors of a document's headings, as forges make them.
func headings(t *testing.T, path string) map[string]bool {
	t.Helper()
	anchors := map[string]bool{}
	for line := range strings.Lines(read(t, path)) {
		if hashes, text, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.Trim(hashes, "#") == "" {
			anchors[strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(text), ""), " ", "-")] = true
		}
	}
	return anchors
}

var namedTest = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]+)`")

// TestNamesExist: tests that documents name exist.
func TestNamesExist(t *testing.T) {
	tests := declaredTests(t)
	named := 0
	for _, document := range documents(t) {
		for _, m := range namedTest.FindAllStringSubmatch(read(t, filepath.Join(root, document)), -1) {
			named++
			if len(tests[m[1]]) == 0 {
				t.Errorf("%s names %s, which is not there", document, m[1])
			}
		}
	}
	if named < 10 {
		t.Errorf("the documents name %d tests", named)
	}
}

var declaredTest = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9]+)\(`)

// declaredTests are the names of all tests of the repository, each with the folders of the packages
// that have one of that name.
func declaredTests(t *testing.T) map[string][]string {
	t.Helper()
	names := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			for _, m := range declaredTest.FindAllStringSubmatch(read(t, path), -1) {
				folder, err := filepath.Rel(root, filepath.Dir(path))
				if err != nil {
					return err
				}
				if folder = filepath.ToSlash(folder); !slices.Contains(names[m[1]], folder) {
					names[m[1]] = append(names[m[1]], folder)
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
