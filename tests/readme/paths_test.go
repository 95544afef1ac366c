package readme

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// namedPath is what looks like a path: in code font, or a package that is called one.
var namedPath = regexp.MustCompile("`([A-Za-z0-9_.-]+/[A-Za-z0-9_./-]*)`|\\bpackage ([a-z]+/[a-z/]+)")

// formerRooms are folders that the repository had, or that people look for in it. A document
// that names one is wrong.
var formerRooms = []string{"archive", "export", "gc", "policy", "replay"}

// keyFolders are what `rondo auth` writes below its --out, which is called like a
// folder of the repository.
var keyFolders = []string{"auth/nats/", "auth/tls/", "auth/users"}

// taskFiles are files of a task, whose folder of tests is called like the repository's.
var taskFiles = []string{"tests/Dockerfile", "tests/test.sh"}

// TestPathsExist: what a document names like a path of this repository is there.
func TestPathsExist(t *testing.T) {
	rooms := slices.Clone(formerRooms)
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	ignored := read(t, filepath.Join(root, ".gitignore")) // such as what the demo of README.md leaves
	for _, e := range entries {
		if e.IsDir() && !strings.Contains(ignored, "\n"+e.Name()+"/\n") &&
			!strings.Contains(ignored, "\n/"+e.Name()+"/\n") {
			rooms = append(rooms, e.Name())
		}
	}
	found := 0
	for _, document := range append(documents(t), others...) {
		for _, path := range pathsIn(read(t, filepath.Join(root, document)), rooms) {
			found++
			path, _, _ = strings.Cut(path, ".Test") // a test with its folder, see TestOneTest
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s names %s, which is not in the repository", document, path)
			}
		}
	}
	if found < 50 {
		t.Errorf("the documents name %d paths", found)
	}
}

// pathsIn are the paths in a text that begin with one of some folders.
func pathsIn(text string, rooms []string) []string {
	var paths []string
	for _, m := range namedPath.FindAllStringSubmatch(text, -1) {
		path := m[1] + m[2]
		room, _, _ := strings.Cut(path, "/")
		elsewhere := slices.ContainsFunc(keyFolders, func(prefix string) bool {
			return strings.HasPrefix(path,
				prefix)
		}) || slices.Contains(taskFiles, path)
		if slices.Contains(rooms, room) && !elsewhere {
			paths = append(paths, path)
		}
	}
	return paths
}

func TestPathsIn(t *testing.T) {
	text := "`events/run`, [`events/x.go`](y), (package events/secrets), `log/`, `auth/users/NAME/s3.env`, `events/<x>`, `gc/`, `go.mod`, github.com/events/x"
	want := []string{"events/run", "events/x.go", "events/secrets", "gc/"}
	if got := pathsIn(text, []string{"events", "auth", "gc"}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
