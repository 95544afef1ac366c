package completion

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/cli/explain"
	"github.com/rondo-rl/rondo/cli/run"
	"github.com/rondo-rl/rondo/cli/trajectories"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/services/servicetest"
)

func TestArguments(t *testing.T) {
	for usage, want := range map[string][]string{
		"show RUN ROLLOUT": {"RUN", "ROLLOUT"}, "steps RUN": {"RUN"}, "batch RUN STEP": {"RUN", ""},
		"continue OLD --as NEW": {"RUN"}, "export RUN... --out PATH": {"RUN"}, "audit [RUN]": {"RUN"},
		"list [POLICY]": {"POLICY"}, "open ROLLOUT [-- COMMAND…]": {"ROLLOUT"}, "build DIR": nil, "list": nil,
		"eval --policy NAME[@VERSION]": nil, "": nil,
	} {
		if got := arguments(usage); !slices.Equal(got, want) {
			t.Errorf("%q takes %q, want %q", usage, got, want)
		}
	}
}

// program is a program with some commands, which complete.
func program() *cobra.Command {
	var g *app.Global
	root := app.New(func(given *app.Global) *cobra.Command { g = given; return run.New(g) },
		explain.New, trajectories.New)
	Add(g, root)
	return root
}

func complete(t *testing.T, args ...string) (offered []string) {
	t.Helper()
	output, err := clitest.RunProgram(t, program(), append([]string{cobra.ShellCompNoDescRequestCmd}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(output) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, ":") &&
			!strings.HasPrefix(line, "Completion ended") {
			offered = append(offered, line)
		}
	}
	return offered
}

func TestNamesOfAPlaneAreOffered(t *testing.T) {
	r := clitest.NewRecorded(t)
	r.Group(1, "fix-a", 2, 0)
	r.Group(12, "fix-b", 1, 0)
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"run", "show", ""}, []string{"first"}},
		{[]string{"run", "show", "f"}, []string{"first"}},
		{[]string{"run", "show", "x"}, nil},
		{[]string{"run", "show", "first", ""}, nil},
		{[]string{"trajectories", "show", "first", ""}, []string{"g000001-0", "g000001-1", "g000012-0"}},
		{[]string{"trajectories", "show", "first", "g00001"}, []string{"g000012-0"}},
		{[]string{"explain", "group", "first", ""}, []string{"g000001", "g000012"}},
		{[]string{"explain", "rollout", "second", ""}, nil},
		{[]string{"explain", "batch", "first", "1", "--feed", ""}, []string{"shadow", "trainer"}},
	} {
		if got := complete(t, append([]string{"--dir", r.Dir}, c.args...)...); !slices.Equal(got, c.want) {
			t.Errorf("%q offers %q, want %q", c.args, got, c.want)
		}
	}
	t.Setenv("RONDO_DIR", r.Dir)
	if got := complete(t, "run", "show", ""); !slices.Equal(got, []string{"first"}) {
		t.Errorf("by the environment %q are offered", got)
	}
}

// Without a plane nothing is offered, nothing is said, and the folder is not held.
func TestWithoutAPlane(t *testing.T) {
	dir := clitest.FilledPlane(t, func(log *eventlog.Log) {
		servicetest.OpenRun(t, log,
			"first", servicetest.Config("a"))
	})
	for _, args := range [][]string{{"--dir", dir}, {"--dir", t.TempDir()},
		{"--nats", "nats://127.0.0.1:1", "--store", dir}} {
		if got := complete(t, append(args, "run", "show", "")...); len(got) > 0 {
			t.Errorf("%v offers %q", args, got)
		}
	}
}

// When the time is over nothing is waited for.
func TestTheShellDoesNotWait(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := clitest.NewRecorded(t)
	if got := offer(ctx, &app.Global{Dir: r.Dir}, "RUN", "", ""); got != nil {
		t.Errorf("%q are offered when the time is over", got)
	}
}
