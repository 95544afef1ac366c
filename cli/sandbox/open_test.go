package sandbox

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// edited is the change that a script makes to a snapshot.
func edited(t *testing.T, snapshot []byte, script string) []byte {
	t.Helper()
	sb := sandboxtest.New(t, sandbox.Spec{})
	ctx := t.Context()
	if err := errors.Join(sb.Unpack(ctx, sb.Workdir(), snapshot), sb.SetBase(ctx)); err != nil {
		t.Fatal(err)
	}
	if done, err := sb.Exec(ctx, sandbox.Command{Argv: []string{"sh", "-ec", script}}); err != nil ||
		done.ExitCode != 0 {
		t.Fatalf("%s: %+v, %v", script, done, err)
	}
	change, err := sb.Changes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return change
}

// threeTurns states a rollout that changed its workspace in its first two turns, and asked
// for no tools in its third.
func threeTurns(t *testing.T, log *eventlog.Log, run, rollout string) {
	t.Helper()
	snapshot := sandboxtest.Pack(t, map[string]string{"a.txt": "one\n"})
	cfg := servicetest.Config("a")
	cfg.Tasks[0].Snapshot = servicetest.Blob(t, log.Store(), snapshot)
	cfg.Tasks[0].Env = map[string]string{"OF_TASK": "yes"}
	servicetest.OpenRun(t, log, run, cfg)
	servicetest.StartRollout(t, log, run, rollout, "a")
	for n, script := range []string{"echo two >> a.txt",
		"echo two >> a.txt; mkdir d; mv a.txt d; ln -s d/a.txt link", ""} {
		sampled := events.TurnSampled{Turn: n, FinishReason: "tool_calls"}
		var after *storage.Ref
		if script != "" {
			sampled.ToolCalls = []events.ToolCall{{ID: "c", Name: "run_terminal_cmd", Arguments: "{}"}}
			ref := servicetest.Blob(t, log.Store(), edited(t, snapshot, script))
			after = &ref
		}
		e := servicetest.Event(t, run, events.TurnSampledType, rollout, events.Ordinal(n), sampled)
		e.Route = runfile.RouteFinal
		servicetest.Append(t, log, e)
		if after != nil {
			servicetest.Append(t, log, servicetest.Event(t, run, events.ToolsCompletedType, rollout, events.Ordinal(n),
				events.ToolsCompleted{Turn: n, Workspace: after}))
		}
	}
}

// TestLastTurnOfAgent: the end of an agent's rollout is its last turn that is not left behind,
// whatever their number is.
func TestLastTurnOfAgent(t *testing.T) {
	r := &events.Rollout{ID: "g000001-0", Calls: make([]events.Call, 1), Finished: &events.RolloutFinished{Turns: 2},
		Turns:   []events.TurnSampled{{}, {Turn: 1}, {Turn: 2}, {Turn: 3}},
		Answers: []events.WorkspaceAnswered{{Agent: &events.AgentEnded{Left: []int{1, 3}}}}}
	turn, err := turnOf(r, -1)
	if err != nil || turn != 2 {
		t.Errorf("turn %d, %v", turn, err)
	}
	if _, err := r.WorkspaceAfter(turn); err != nil {
		t.Error(err)
	}
}

// TestSandboxOpen looks into a rollout's workspace after each of its turns.
func TestSandboxOpen(t *testing.T) {
	sandboxtest.Require(t)
	const id = "g000001-0"
	dir := clitest.FilledPlane(t, func(log *eventlog.Log) {
		threeTurns(t, log, "r", id)
		servicetest.OpenRun(t, log, "other", servicetest.Config("a"))
		servicetest.StartRollout(t, log, "other", "g000002-0", "a")
		servicetest.StartRollout(t, log, "r", "g000002-0", "a")
	})
	open := func(args ...string) (string, error) {
		return clitest.Run(t, New, append([]string{"sandbox", "open", "--dir", dir}, args...)...)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"first": {[]string{id, "--turn", "0", "--", "sh", "-c", "cat a.txt; ls"}, "one\ntwo\na.txt\n"},
		"second": {[]string{id, "--turn", "1", "--run", "r", "--", "sh", "-c", "cat link; ls"},
			"one\ntwo\nd\nlink\n"},
		"last":                 {[]string{id, "--", "sh", "-c", "readlink link; echo $OF_TASK"}, "d/a.txt\nyes\n"},
		"nothing is kept":      {[]string{id, "--", "sh", "-c", "rm -r d; ls"}, "link\n"},
		"nothing was kept":     {[]string{id, "--", "ls"}, "d\nlink\n"},
		"named as the rollout": {[]string{id, "--", "hostname"}, id + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := open(c.args...); err != nil || got != c.want {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		})
	}
	text, err := open(id, "--turn", "1", "--json", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
	var done executedCommand
	if jsonErr := json.Unmarshal([]byte(text), &done); err != nil || jsonErr != nil {
		t.Fatalf("%q: %v, %v", text, err, jsonErr)
	}
	if done.Run != "r" || done.Rollout != id || done.Turn != 1 || done.ExitCode != 3 || done.Stdout != "out\n" ||
		done.Stderr != "err\n" || done.Isolation != "namespaces" {
		t.Errorf("%+v", done)
	}
	var exit *app.ExitError
	if _, err := open(id, "--", "sh", "-c", "exit 3"); !errors.As(err, &exit) || exit.Code != 3 {
		t.Errorf("a command that ends with 3: %v", err)
	}
	if _, err := open(id, "--timeout", "100ms", "--", "sleep", "60"); !errors.As(err, &exit) ||
		!strings.Contains(err.Error(), "--timeout") {
		t.Errorf("a command that takes too long: %v", err)
	}
	for want, args := range map[string][]string{
		"3 turns":            {id, "--turn", "3", "--", "true"},
		"counted from 0":     {id, "--turn", "-2", "--", "true"},
		"no turn yet":        {"g000002-0", "--run", "r", "--", "true"},
		"--run (other, r)":   {"g000002-0", "--", "true"},
		"no run has":         {"g000009-0", "--", "true"},
		"has no rollout":     {"g000009-0", "--run", "r", "--", "true"},
		"there is no run":    {id, "--run", "none", "--", "true"},
		"give an id":         {"../x", "--", "true"},
		"behind --":          {id, "true"},
		"no terminal":        {id},
		"--json needs":       {id, "--json"},
		"ROLLOUT is missing": {"--turn", "0"},
	} {
		t.Run(want, func(t *testing.T) {
			if out, err := open(args...); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %q, %v; want %q", args, out, err, want)
			}
		})
	}
}
