package tools

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// TestTools: what is listed is what a run offers, in each form.
func TestTools(t *testing.T) {
	must := func(args ...string) string {
		t.Helper()
		out, err := clitest.Run(t, New, append([]string{"tools"}, args...)...)
		if err != nil {
			t.Fatalf("tools %v: %v", args, err)
		}
		return out
	}
	if lines := strings.Split(strings.TrimSpace(must("list")), "\n"); len(lines) != 1+
		len(toolset.Sets[toolset.Composer]) || !strings.HasPrefix(lines[1], "read_file ") {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
	file := clitest.Write(t, filepath.Join(t.TempDir(), "run.yaml"), `policy: p
endpoint: builtin
tools:
  set: composer
  only: [grep, todo_write]
  rename: {grep: search}
  add: [{name: check, description: Run the checks., command: [make], parameters: {type: object, properties: {n: {type: integer, maximum: 5}}}, timeout: 2m}]
`)
	var entries []toolEntry
	if err := json.Unmarshal([]byte(must("list", "--file", file, "--json")), &entries); err != nil {
		t.Fatal(err)
	}
	if len(entries) != 3 || entries[0].Name != "search" || !entries[0].Cacheable || entries[1].Name != "todo_write" ||
		entries[2].Seconds != 120 || !strings.Contains(string(entries[2].Parameters), `"maximum":5`) {
		t.Errorf("%+v", entries)
	}
	var mcp struct {
		Name        string
		InputSchema map[string]any
		Annotations map[string]bool
	}
	if err := json.Unmarshal([]byte(must("show", "delete_file", "--mcp", "--json")), &mcp); err != nil {
		t.Fatal(err)
	}
	if a := mcp.Annotations; mcp.Name != "delete_file" || mcp.InputSchema["type"] != "object" || a["readOnlyHint"] ||
		!a["destructiveHint"] || !a["idempotentHint"] || a["openWorldHint"] || len(a) != 4 {
		t.Errorf("%+v", mcp)
	}
	if out := must("show", "grep", "--openai", "--json"); !strings.HasPrefix(out,
		`{"type":"function","function":{"name":"grep",`) {
		t.Error(out)
	}
	if out := must("show", "read_lints"); !strings.Contains(out, "notChecked") || !strings.Contains(out, `"paths": {`) {
		t.Error(out)
	}
	for want, args := range map[string][]string{
		`there is no tool "fly"`: {"show", "fly"}, "tools.set": {"list", "--set", "all"},
		"no such file": {"list", "--file", "/nowhere"},
	} {
		t.Run(want, func(t *testing.T) {
			if _, err := clitest.Run(t, New, append([]string{"tools"}, args...)...); err == nil ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("tools %v: %v", args, err)
			}
		})
	}
}
