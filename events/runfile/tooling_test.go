package runfile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// TestTooling: what no service could offer is told when the run is opened, with what is allowed.
func TestTooling(t *testing.T) {
	tool := func(change func(*toolset.Added)) toolset.Tooling {
		a := toolset.Added{Name: "check", Description: "Check.", Command: []string{"make", "check"},
			Parameters: map[string]any{"type": "object"}}
		change(&a)
		return toolset.Tooling{Add: []toolset.Added{a}}
	}
	served := func(change func(*toolset.Server)) toolset.Tooling {
		s := toolset.Server{Name: "docs", Command: []string{"docs"},
			Tools: []toolset.ServerTool{{Name: "find"}, {Name: "a.b"}}, Only: []string{"find"}}
		change(&s)
		return toolset.Tooling{Servers: []toolset.Server{s}}
	}
	outside := func(url string) toolset.Tooling {
		return served(func(s *toolset.Server) { s.Command, s.URL = nil, url })
	}
	for want, tooling := range map[string]toolset.Tooling{
		"": {Set: toolset.Composer, Only: []string{"grep", "todo_write"}, Rename: map[string]string{"grep": "search"},
			Add: []toolset.Added{{Name: "grep", Description: "x", Command: []string{"x"}}}},
		`tools.set "all": must be basic or composer`:      {Set: "all"},
		`tools.only: there is no "todo_write" in the set`: {Only: []string{"todo_write"}},
		`tools.only: "grep" appears twice`:                {Only: []string{"grep", "grep"}},
		"tools.only: codebase_search needs the feature":   {Only: []string{"codebase_search"}},
		`tools.rename: the run has no tool "write" of the set`: {Only: []string{"grep"},
			Rename: map[string]string{"write": "w"}},
		`tools.rename: grep: "a b" is not a name`:        {Rename: map[string]string{"grep": "a b"}},
		`tools.rename: two tools are called "write"`:     {Rename: map[string]string{"grep": "write"}},
		`tools.add: 0: two tools are called "grep"`:      tool(func(a *toolset.Added) { a.Name = "grep" }),
		`tools.add: 0 ("a b"): name`:                     tool(func(a *toolset.Added) { a.Name = "a b" }),
		`tools.add: 0 ("check"): description of 0 bytes`: tool(func(a *toolset.Added) { a.Description = "" }),
		`tools.add: 0 ("check"): command of 0 words`:     tool(func(a *toolset.Added) { a.Command = nil }),
		`tools.add: 0 ("check"): command: a word of`: tool(
			func(a *toolset.Added) { a.Command = []string{"a\x00b"} }),
		`tools.add: 0 ("check"): timeout 1h0m0s`: tool(
			func(a *toolset.Added) { a.Timeout = Duration(3600e9) }),
		`tools.add: 0 ("check"): parameters: their type`: tool(
			func(a *toolset.Added) { a.Parameters = map[string]any{"type": "array"} }),
		`tools.add: 0 ("check"): parameters: "urn:tool#" is not`: tool(
			func(a *toolset.Added) { a.Parameters["properties"] = 5 }),
		`tools.add: 0 ("check"): parameters: failing loading`: tool(
			func(a *toolset.Added) { a.Parameters["$ref"] = "file:///etc/passwd" }),
		`tools.add: 0 ("check"): parameters of 2`: tool(func(a *toolset.Added) {
			a.Parameters["description"] = strings.Repeat("x", 20<<10)
		}),
		"tools.add: 33 tools, at most 32": {Add: make([]toolset.Added, 33)},
		`tools.servers: 0 ("a b"): name`:  served(func(s *toolset.Server) { s.Name = "a b" }),
		`tools.servers: 0 ("docs"): give the command`: served(
			func(s *toolset.Server) { s.URL = "https://example.com" }),
		`tools.servers: 0 ("docs"): command: a word of`: served(
			func(s *toolset.Server) { s.Command = []string{"a\x00b"} }),
		`tools.servers: 0 ("docs"): timeout 1h0m0s`: served(
			func(s *toolset.Server) { s.Timeout = Duration(3600e9) }),
		`tools.servers: 0 ("docs"): 0 tools, want 1 to 128`: served(func(s *toolset.Server) { s.Tools = nil }),
		`tools.servers: 0 ("docs"): 129 tools`: served(
			func(s *toolset.Server) { s.Tools = make([]toolset.ServerTool, 129) }),
		`tools.servers: 0 ("docs"): only: the server has no`: served(
			func(s *toolset.Server) { s.Only = []string{"fly"} }),
		`tools.servers: 0 ("docs"): two tools are called "a.b"`: served(
			func(s *toolset.Server) { s.Tools[0].Name = "a.b" }),
		`("docs"): tool "a.b": the model would know it as`: served(func(s *toolset.Server) { s.Only = nil }),
		`("docs"): tool "find": description of 4097 bytes`: served(
			func(s *toolset.Server) { s.Tools[0].Description = strings.Repeat("x", 4097) }),
		`("docs"): tool "find": parameters: their type`: served(
			func(s *toolset.Server) { s.Tools[0].Parameters = map[string]any{} }),
		`tools.servers: 0 ("docs"): url "builtin": give one`:       outside("builtin"),
		`tools.servers: 0 ("docs"): url "…@example.com": give one`: outside("https://me:word@example.com"),
		"tools.servers: 9 of them, at most 8":                      {Servers: make([]toolset.Server, 9)},
		`tools.servers: 1 ("docs"): two servers have the name`: {Servers: append(
			served(func(*toolset.Server) {}).Servers, served(func(*toolset.Server) {}).Servers...)},
		`two tools are called "docs__find"`: {
			Add:     []toolset.Added{{Name: "docs__find", Description: "x", Command: []string{"x"}}},
			Servers: served(func(*toolset.Server) {}).Servers,
		},
		"described in 4": served(func(s *toolset.Server) {
			s.Tools, s.Only = nil, nil
			for i := range 100 {
				s.Tools = append(s.Tools, toolset.ServerTool{Name: fmt.Sprint(i),
					Description: strings.Repeat("x", 4<<10)})
			}
		}),
	} {
		t.Run(want, func(t *testing.T) {
			cfg := validConfig()
			cfg.Tools = tooling
			err := cfg.Validate()
			if want == "" && err != nil {
				t.Errorf("refused: %v", err)
			}
			if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%v does not say %q", err, want)
			}
		})
	}
}

// TestCommandTimeoutBounds takes an hour and no more.
func TestCommandTimeoutBounds(t *testing.T) {
	for limit, ok := range map[time.Duration]bool{0: true, time.Hour: true, time.Hour + 1: false, -1: false} {
		cfg := RunConfig{Tools: toolset.Tooling{CommandTimeout: Duration(limit)}}
		if err := cfg.CheckTools(); (err == nil) != ok {
			t.Errorf("%s: %v", limit, err)
		}
	}
}
