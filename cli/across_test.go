package cli

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/cli/run"
	"github.com/rondo-rl/rondo/cli/tools"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/sandbox/toolset"
	"github.com/rondo-rl/rondo/services/servicetest"
	testprogram "github.com/rondo-rl/rondo/tests/program"
)

// TestToolsOfServers: those that a run file or a run has are listed, and servers that cannot be
// asked keep a run from being opened.
func TestToolsOfServers(t *testing.T) {
	cfg := servicetest.Config("a")
	cfg.Tools.Servers = []toolset.Server{{Name: "wiki", URL: "http://127.0.0.1:1/mcp",
		Tools: []toolset.ServerTool{{Name: "look", Description: "Look\x1b[31m up.\nPages."}}}}
	dir := clitest.FilledPlane(t, func(log *eventlog.Log) { servicetest.OpenRun(t, log, "first", cfg) })
	out, err := clitest.Run(t, tools.New, "tools", "list", "--dir", dir, "--run", "first")
	if err != nil || !strings.Contains(out, "wiki__look") || !strings.Contains(out, "Look␛[31m up\n") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = clitest.Run(t, tools.New, "tools", "show", "wiki__look", "--dir", dir, "--run",
		"first", "--mcp", "--json")
	var shown struct{ Annotations map[string]bool }
	if err != nil || json.Unmarshal([]byte(out), &shown) != nil || !shown.Annotations["openWorldHint"] ||
		shown.Annotations["readOnlyHint"] {
		t.Errorf("%v\n%s", err, out)
	}
	file := clitest.Write(t, filepath.Join(t.TempDir(), "run.yaml"), `policy: p
endpoint: builtin
tools:
  servers:
  - {name: wiki, url: "http://127.0.0.1:1/mcp"}
  - {name: docs, command: [docs], only: [find], tools: [{name: find, read_only: true}, {name: drop}]}
`)
	out, err = clitest.Run(t, tools.New, "tools", "list", "--file", file)
	if err != nil || !strings.Contains(out, "docs__find") || strings.Contains(out, "docs__drop") ||
		strings.Contains(out, "wiki__") {
		t.Errorf("%v\n%s", err, out)
	}
	_, err = clitest.Run(t, run.New, "run", "open", "second", "--dir", dir, "--file", file)
	for _, part := range []string{"run second", "server wiki", "unreachable", "write down its tools"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
}

// TestForeignDirectory: a plane in a directory, or behind a link, of another user would
// be in that user's hands.
func TestForeignDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		testprogram.Missing(t, "only root can give a directory away")
	}
	const stranger = 12345
	base := t.TempDir()
	foreign, link := filepath.Join(base, "foreign"), filepath.Join(base, "link")
	if err := errors.Join(os.MkdirAll(filepath.Join(foreign, "nats"), 0o777),
		os.Lchown(foreign, stranger, stranger)); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(base, "own")
	if err := errors.Join(os.MkdirAll(filepath.Join(own, "nats"), 0o700), os.Symlink(own, link),
		os.Lchown(link, stranger, stranger)); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{foreign, link} {
		for _, command := range [][]string{{"up"}, {"run", "list"}} {
			if _, err := rondo(t, append(command, "--dir", dir)...); err == nil ||
				!strings.Contains(err.Error(), "belongs to another user (uid 12345") {
				t.Errorf("%v in %s: %v", command, dir, err)
			}
		}
	}
	// A stranger who plants an endpoint gets nobody to connect to it.
	if err := os.WriteFile(plane.EndpointFile(foreign),
		[]byte(`{"nats": "nats://127.0.0.1:4222", "pid": 1}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := plane.ReadEndpoint(foreign); err == nil {
		t.Error("a planted endpoint is read")
	}
}
