package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestToolsOfServers: those that a run file or a run has are listed, and servers that cannot be asked keep a run from being opened.
func TestToolsOfServers(t *testing.T) {
	cfg := servicetest.Config("a")
	cfg.Tools.Servers = []events.ToolServer{{Name: "wiki", URL: "http://127.0.0.1:1/mcp", Tools: []events.ServerTool{{Name: "look", Description: "Look\x1b[31m up.\nPages."}}}}
	dir := held(t, func(log *eventlog.Log) { servicetest.OpenRun(t, log, "first", cfg) })
	out, err := rondo(t, "tools", "list", "--dir", dir, "--run", "first")
	if err != nil || !strings.Contains(out, "wiki__look") || !strings.Contains(out, "Look␛[31m up\n") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = rondo(t, "tools", "show", "wiki__look", "--dir", dir, "--run", "first", "--mcp", "--json")
	var shown struct{ Annotations map[string]bool }
	if err != nil || json.Unmarshal([]byte(out), &shown) != nil || !shown.Annotations["openWorldHint"] || shown.Annotations["readOnlyHint"] {
		t.Errorf("%v\n%s", err, out)
	}
	file := write(t, filepath.Join(t.TempDir(), "run.yaml"), `policy: p
endpoint: builtin
tools:
  servers:
  - {name: wiki, url: "http://127.0.0.1:1/mcp"}
  - {name: docs, command: [docs], only: [find], tools: [{name: find, read_only: true}, {name: drop}]}
`)
	out, err = rondo(t, "tools", "list", "--file", file)
	if err != nil || !strings.Contains(out, "docs__find") || strings.Contains(out, "docs__drop") || strings.Contains(out, "wiki__") {
		t.Errorf("%v\n%s", err, out)
	}
	_, err = rondo(t, "run", "open", "second", "--dir", dir, "--file", file)
	for _, part := range []string{"run second", "server wiki", "unreachable", "write down its tools"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
}

// TestAsListed: an evaluation that goes on has the tools that its servers had when it was opened.
func TestAsListed(t *testing.T) {
	tools := func(name string) []events.ServerTool { return []events.ServerTool{{Name: name}} }
	var cfg, opened events.RunConfig
	cfg.Tools.Servers = []events.ToolServer{{Name: "a"}, {Name: "b", Tools: tools("own")}, {Name: "c"}}
	opened.Tools.Servers = []events.ToolServer{{Name: "a", Tools: tools("x")}, {Name: "b", Tools: tools("y")}, {Name: "other", Tools: tools("z")}}
	given := cfg.Tools.Servers
	asListed(&cfg, opened)
	if s := cfg.Tools.Servers; s[0].Tools[0].Name != "x" || s[1].Tools[0].Name != "own" || len(s[2].Tools) > 0 || len(given[0].Tools) > 0 {
		t.Errorf("%+v, and the caller has %+v", s, given)
	}
}
