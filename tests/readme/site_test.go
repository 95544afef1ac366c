package readme

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// loaded are the scripts, styles and pictures of a page that another server would give.
var loaded = regexp.MustCompile(`<(?:script|img|iframe)[^>]* src="https?://[^"]*"|<link[^>]* rel="(?:stylesheet|icon|preload)"[^>]* href="https?://[^"]*"`)

// TestSite builds the documentation as a site. A link or an anchor that leads nowhere fails the
// build, as does a page without a place in the navigation. Each page of docs/ and each public name
// of the Python package is found by the search, and a page loads nothing from other servers.
func TestSite(t *testing.T) {
	t.Parallel()
	interpreter := python(t, "material", "mkdocstrings")
	site := t.TempDir()
	if _, err := command(root, interpreter, "-m", "mkdocs", "build", "--strict", "--quiet",
		"--site-dir", site); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(site, "search/search_index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var index struct {
		Docs []struct{ Location string }
	}
	if err := json.Unmarshal(text, &index); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, d := range index.Docs {
		found[d.Location] = true
	}
	out, err := exec.Command("git", "-C", root, "ls-files", "docs/*.md").Output()
	if err != nil {
		t.Fatal(err)
	}
	for page := range strings.Lines(string(out)) {
		page = strings.TrimSpace(page)
		place := strings.TrimSuffix(strings.TrimPrefix(page, "docs/"), ".md") + "/"
		if place = strings.TrimSuffix(place, "README/"); !found[place] {
			t.Errorf("the search does not find %s at %q", page, place)
		}
	}
	names, err := command(root, interpreter, "-c", "import rondo; print(' '.join(rondo.__all__))")
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(names) {
		if !found["python/#rondo."+name] {
			t.Errorf("the Python reference says nothing of %s", name)
		}
	}
	pages := 0
	err = filepath.WalkDir(site, func(path string, d os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".html" {
			return err
		}
		pages++
		text, err := os.ReadFile(path)
		if other := loaded.Find(text); other != nil {
			t.Errorf("%s loads %s", path, other)
		}
		return err
	})
	if err != nil || pages < len(strings.Split(string(out), "\n")) {
		t.Errorf("%d pages, %v", pages, err)
	}
}
