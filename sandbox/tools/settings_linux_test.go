package tools_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/sandbox/tools"
)

// terminalOf is the set's tool that runs commands.
func terminalOf(t *testing.T, cfg runfile.RunConfig) tools.Definition {
	t.Helper()
	s, err := tools.NewSet(cfg)
	if err != nil {
		t.Fatal(err)
	}
	all := s.Definitions()
	return all[slices.IndexFunc(all, func(d tools.Definition) bool { return d.Name == "run_terminal_cmd" })]
}

// TestCommandTimeout holds commands to the run's limit where the sandbox's own would let them go on, and the other way round.
func TestCommandTimeout(t *testing.T) {
	short, long := sandboxtest.New(t, sandbox.Spec{Limits: sandbox.Limits{Wall: time.Millisecond}}), sandboxtest.New(t, sandbox.Spec{})
	for _, name := range []string{runfile.ToolsBasic, runfile.ToolsComposer} {
		tooling := runfile.Tooling{Set: name, CommandTimeout: runfile.Duration(200 * time.Millisecond)}
		r := callWith(t, set(t, tooling), long, &events.ToolState{}, "run_terminal_cmd", `{"command":"sleep 100"}`)
		if !strings.Contains(r.Content, "timed out: killed after ") {
			t.Errorf("%s: %q", name, r.Content)
		}
		tooling.CommandTimeout = runfile.Duration(10 * time.Minute)
		r = callWith(t, set(t, tooling), short, &events.ToolState{}, "run_terminal_cmd", `{"command":"sleep 0.1; echo done"}`)
		if !strings.HasPrefix(r.Content, "done\n") {
			t.Errorf("%s: %q", name, r.Content)
		}
		cfg := runfile.DefaultRunConfig()
		cfg.Tools = tooling
		if d := terminalOf(t, cfg); d.Limits.Time != 10*time.Minute {
			t.Errorf("%s: the tool says %s", name, d.Limits.Time)
		}
	}
}

// TestCommandTimeoutBounds takes an hour and no more.
func TestCommandTimeoutBounds(t *testing.T) {
	for limit, ok := range map[time.Duration]bool{0: true, time.Hour: true, time.Hour + 1: false, -1: false} {
		cfg := runfile.RunConfig{Tools: runfile.Tooling{CommandTimeout: runfile.Duration(limit)}}
		if err := cfg.CheckTools(); (err == nil) != ok {
			t.Errorf("%s: %v", limit, err)
		}
	}
}

// TestModelKnowsItsNetwork describes commands as they were where a run has no network, and says what they reach where it has one.
func TestModelKnowsItsNetwork(t *testing.T) {
	cfg := runfile.DefaultRunConfig()
	for _, name := range []string{runfile.ToolsBasic, runfile.ToolsComposer} {
		cfg.Tools.Set, cfg.Network = name, nil
		before := terminalOf(t, cfg).Description
		cfg.Network = &runfile.Network{Allow: []string{"pypi", "example.org"}}
		after := terminalOf(t, cfg).Description
		if !strings.Contains(before, "without a terminal, network or input") || strings.Contains(after, ", network or") || !strings.HasSuffix(after, ": pypi, example.org.") {
			t.Errorf("%s: %q, then %q", name, before, after)
		}
	}
}
