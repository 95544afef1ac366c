package events

import (
	"strings"
	"testing"
)

// TestTooling: what no service could offer is told when the run is opened, with what is allowed.
func TestTooling(t *testing.T) {
	tool := func(change func(*AddedTool)) Tooling {
		a := AddedTool{Name: "check", Description: "Check.", Command: []string{"make", "check"}, Parameters: map[string]any{"type": "object"}}
		change(&a)
		return Tooling{Add: []AddedTool{a}}
	}
	for want, tooling := range map[string]Tooling{
		"": {Set: ToolsComposer, Only: []string{"grep", "todo_write"}, Rename: map[string]string{"grep": "search"}, Add: []AddedTool{{Name: "grep", Description: "x", Command: []string{"x"}}}},
		`tools.set "all": must be basic or composer`:             {Set: "all"},
		`tools.only: there is no "todo_write" in the set`:        {Only: []string{"todo_write"}},
		`tools.only: "grep" stands twice`:                        {Only: []string{"grep", "grep"}},
		"tools.only: codebase_search needs the feature":          {Only: []string{"codebase_search"}},
		`tools.rename: the run has no tool "write" of the set`:   {Only: []string{"grep"}, Rename: map[string]string{"write": "w"}},
		`tools.rename: grep: "a b" is no name`:                   {Rename: map[string]string{"grep": "a b"}},
		`tools.rename: two tools are called "write"`:             {Rename: map[string]string{"grep": "write"}},
		`tools.add: 0: two tools are called "grep"`:              tool(func(a *AddedTool) { a.Name = "grep" }),
		`tools.add: 0 ("a b"): name`:                             tool(func(a *AddedTool) { a.Name = "a b" }),
		`tools.add: 0 ("check"): description of 0 bytes`:         tool(func(a *AddedTool) { a.Description = "" }),
		`tools.add: 0 ("check"): command of 0 words`:             tool(func(a *AddedTool) { a.Command = nil }),
		`tools.add: 0 ("check"): command: a word of`:             tool(func(a *AddedTool) { a.Command = []string{"a\x00b"} }),
		`tools.add: 0 ("check"): timeout 1h0m0s`:                 tool(func(a *AddedTool) { a.Timeout = Duration(3600e9) }),
		`tools.add: 0 ("check"): parameters: their type`:         tool(func(a *AddedTool) { a.Parameters = map[string]any{"type": "array"} }),
		`tools.add: 0 ("check"): parameters: "urn:tool#" is not`: tool(func(a *AddedTool) { a.Parameters["properties"] = 5 }),
		`tools.add: 0 ("check"): parameters: failing loading`:    tool(func(a *AddedTool) { a.Parameters["$ref"] = "file:///etc/passwd" }),
		`tools.add: 0 ("check"): parameters of 2`: tool(func(a *AddedTool) {
			a.Parameters["description"] = strings.Repeat("x", 20<<10)
		}),
		"tools.add: 33 tools, at most 32": {Add: make([]AddedTool, 33)},
	} {
		cfg := validConfig()
		cfg.Tools = tooling
		err := cfg.Validate()
		if want == "" && err != nil {
			t.Errorf("refused: %v", err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}
