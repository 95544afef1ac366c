package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/tests/program"
)

// running lists the processes of this machine with a command line.
func running(t *testing.T, command string) (found []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		if line, err := os.ReadFile(name); err == nil &&
			string(bytes.ReplaceAll(bytes.TrimRight(line, "\x00"), []byte{0}, []byte{' '})) == command {
			found = append(found, name)
		}
	}
	return found
}

// outside is a log and a store for services that are processes of their own.
func outside(t *testing.T) (log *eventlog.Log, url, objects string) {
	t.Helper()
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	conn, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	objects = t.TempDir()
	store, err := dir.Open(objects)
	if err != nil {
		t.Fatal(err)
	}
	log, err = eventlog.New(conn, store)
	if err == nil {
		err = log.Streams.Ensure(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return log, server.URL(), objects
}

// TestRunnerKilledInATurn kills the runner that holds a rollout's sandbox with SIGKILL while
// it runs the second turn. Another one, which has neither its directory nor its sandbox,
// goes on behind the first turn, and the rollout ends as one does whose runner lives. Of the
// dead one no process is left.
func TestRunnerKilledInATurn(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	const killed, unhurt, slow = "g000001-0", "g000001-1", "sleep 2.00471"
	log, url, objects := outside(t)
	store := log.Store()
	cfg := servicetest.Config("a")
	cfg.Tasks[0].Snapshot = servicetest.Blob(t, store, sandboxtest.Pack(t, map[string]string{"src/a.txt": "zero\n"}))
	cfg.Tasks[0].Tests = servicetest.Blob(t, store, sandboxtest.Pack(t, map[string]string{
		"test.sh": `[ "$(tr '\n' ' ' < moved/a.txt)" = "zero one two three " ] && r=1 || r=0; echo "{\"reward\": $r}" > /logs/verifier/reward.json` + "\n",
	}))
	servicetest.OpenRun(t, log, "r", cfg)
	runner := func() *program.Process {
		return start(t, "service", "toolrunner", "scorer", "--nats", url, "--store", objects, "--dir", t.TempDir())
	}
	sampled := func(rollout string, n int, route, command string) {
		call := events.ToolCall{ID: fmt.Sprint(n), Name: "run_terminal_cmd",
			Arguments: fmt.Sprintf(`{"command":%q,"is_background":false}`, command)}
		e := servicetest.Event(t, "r", events.TurnSampledType, rollout, events.Ordinal(n),
			events.TurnSampled{Turn: n, ToolCalls: []events.ToolCall{call}, FinishReason: "tool_calls"})
		e.Route = route
		servicetest.Append(t, log, e)
	}
	answered := func(rollout string, n int) events.ToolsCompleted {
		all := servicetest.Wait(t, log, "r", events.ToolsCompletedType, rollout, n+1)
		return servicetest.Data[events.ToolsCompleted](t, all[n])
	}
	first, second := "mv src moved; echo one >> moved/a.txt",
		"echo two >> moved/a.txt; "+slow+"; echo three >> moved/a.txt"
	finish := func(rollout string) events.RolloutScored {
		finished := servicetest.Finished(t, store, "r", rollout, servicetest.Trajectory("r", rollout, "a"))
		finished.Workspace = answered(rollout, 1).Workspace
		servicetest.Append(t, log, servicetest.Event(t, "r", events.RolloutFinishedType, rollout, "0", finished))
		return servicetest.WaitData[events.RolloutScored](t, log, "r", events.RolloutScoredType, rollout)
	}

	doomed := runner()
	servicetest.StartRollout(t, log, "r", killed, "a")
	sampled(killed, 0, cfg.Pool, first)
	held := answered(killed, 0).Runner
	other := runner()
	sampled(killed, 1, runfile.RunnerRoute(held, runfile.Needs{}), second)
	program.Eventually(t, func() error {
		if len(running(t, slow)) == 0 {
			return errors.New("the second turn does not run\n" + doomed.String())
		}
		return nil
	})
	doomed.Kill()
	program.Eventually(t, func() error {
		if left := running(t, slow); len(left) > 0 {
			return fmt.Errorf("left of the dead runner's sandbox: %v", left)
		}
		return nil
	})
	again := answered(killed, 1)
	if again.Runner == held || again.Workspace == nil {
		t.Fatalf("%+v\n%s", again, other)
	}
	after := finish(killed)

	servicetest.StartRollout(t, log, "r", unhurt, "a")
	sampled(unhurt, 0, cfg.Pool, first)
	sampled(unhurt, 1, runfile.RunnerRoute(answered(unhurt, 0).Runner, runfile.Needs{}), second)
	want := finish(unhurt)
	if after.Reward != 1 || want.Reward != 1 || *again.Workspace != *answered(unhurt, 1).Workspace ||
		again.Results[0].Content != answered(unhurt, 1).Results[0].Content {
		t.Errorf("the rollout whose runner was killed has reward %g and workspace %v, the other one %g and %v",
			after.Reward, again.Workspace, want.Reward, answered(unhurt, 1).Workspace)
	}
}
