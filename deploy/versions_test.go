package deploy_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestImagesAreWhatWasTested: the containers run the versions that the tests run in the process,
// and the chart takes images of this release.
func TestImagesAreWhatWasTested(t *testing.T) {
	for _, c := range []struct{ file, version, from, want string }{
		{"../compose.yaml", `image: nats:(\S+)-alpine`, "../go.mod", `nats-server/v2 v(\S+)`},
		{"../compose.yaml", `image: versity/versitygw:v(\S+)`, "../tools/s3dev/go.mod", `versitygw v(\S+)`},
		{"../tools/compose/go.mod", `nats-server/v2 v(\S+)`, "../go.mod", `nats-server/v2 v(\S+)`},
		{"../tools/compose/go.mod", `versitygw v(\S+)`, "../tools/s3dev/go.mod", `versitygw v(\S+)`},
		{"../Dockerfile", `ARG GO_VERSION=(\S+)`, "../go.mod", `(?m)^go (\S+)`},
		{"helm/rondo/Chart.yaml", `appVersion: "(\S+)"`, "../clients/python/rondo/__init__.py",
			`__version__ = "(\S+)"`},
	} {
		if got, want := find(t, c.file, c.version), find(t, c.from, c.want); got != want {
			t.Errorf("%s has %s, %s has %s", c.file, got, c.from, want)
		}
	}
}

func find(t *testing.T, path, pattern string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(pattern).FindSubmatch(text)
	if m == nil {
		t.Fatalf("%s has nothing like %s", path, pattern)
	}
	return string(m[1])
}

// TestContextHoldsTheSources: .dockerignore lets through what the image is built from.
func TestContextHoldsTheSources(t *testing.T) {
	text, err := os.ReadFile("../.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "list", "-deps", "-f", "{{.ImportPath}}", "../cmd/rondo").Output()
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/rondo-rl/rondo/"
	found := 0
	for _, pkg := range strings.Fields(string(out)) {
		folder, ours := strings.CutPrefix(pkg, module)
		if !ours {
			continue
		}
		found++
		if !letThrough(string(text), folder) {
			t.Errorf(".dockerignore keeps %s out of the build", folder)
		}
	}
	if found < 10 {
		t.Errorf("cmd/rondo is built from %d packages", found)
	}
	if letThrough(string(text), "docs") || letThrough(string(text), ".git") || letThrough(string(text), "tests/e2e") {
		t.Error(".dockerignore lets everything through")
	}
}

func letThrough(ignore, folder string) bool {
	for _, line := range strings.Split(ignore, "\n") {
		if kept, ok := strings.CutPrefix(line, "!"); ok && (folder == kept || strings.HasPrefix(folder, kept+"/")) {
			return true
		}
	}
	return false
}
