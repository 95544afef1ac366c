package tools_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/sandbox/tools"
	"github.com/rondo-rl/rondo/sandbox/toolset"
	"github.com/rondo-rl/rondo/wording"
)

// terminalOf is the set's tool that runs commands.
func terminalOf(t *testing.T, settings toolset.Settings) tools.Definition {
	t.Helper()
	s, err := tools.NewSet(settings)
	if err != nil {
		t.Fatal(err)
	}
	all := s.Definitions()
	return all[slices.IndexFunc(all, func(d tools.Definition) bool { return d.Name == "run_terminal_cmd" })]
}

// TestCommandTimeout holds commands to the run's limit where the sandbox's own would let them go
// on, and the other way round.
func TestCommandTimeout(t *testing.T) {
	short, long := sandboxtest.New(t, sandbox.Spec{Limits: sandbox.Limits{Wall: time.Millisecond}}),
		sandboxtest.New(t, sandbox.Spec{})
	for _, name := range []string{toolset.Basic, toolset.Composer} {
		tooling := toolset.Tooling{Set: name, CommandTimeout: wording.Duration(200 * time.Millisecond)}
		r := callWith(t, set(t, tooling), long, &toolset.State{}, "run_terminal_cmd", `{"command":"sleep 100"}`)
		if !strings.Contains(r.Content, "timed out: killed after ") {
			t.Errorf("%s: %q", name, r.Content)
		}
		tooling.CommandTimeout = wording.Duration(10 * time.Minute)
		r = callWith(t, set(t, tooling), short, &toolset.State{}, "run_terminal_cmd",
			`{"command":"sleep 0.1; echo done"}`)
		if !strings.HasPrefix(r.Content, "done\n") {
			t.Errorf("%s: %q", name, r.Content)
		}
		if d := terminalOf(t, toolset.Settings{Tools: tooling}); d.Limits.Time != 10*time.Minute {
			t.Errorf("%s: the tool says %s", name, d.Limits.Time)
		}
	}
}

// TestModelKnowsItsNetwork describes commands as they were where a run has no network, and says
// what they reach where it has one.
func TestModelKnowsItsNetwork(t *testing.T) {
	for _, name := range []string{toolset.Basic, toolset.Composer} {
		settings := toolset.Settings{Tools: toolset.Tooling{Set: name}}
		before := terminalOf(t, settings).Description
		settings.Network = []string{"pypi", "example.org"}
		after := terminalOf(t, settings).Description
		if !strings.Contains(before, "without a terminal, network or input") ||
			strings.Contains(after, ", network or") || !strings.HasSuffix(after, ": pypi, example.org.") {
			t.Errorf("%s: %q, then %q", name, before, after)
		}
	}
}
