package toolrunner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/tasks"
)

const (
	rollout   = "g000001-0"
	poolRoute = "pool-shell"
)

// open opens a run on one task whose snapshot is there, and starts one rollout.
func open(t *testing.T, log *eventlog.Log, run string, change func(*runfile.RunConfig)) {
	t.Helper()
	cfg := servicetest.Config("a")
	cfg.Limits.Tries = 2
	cfg.Tasks[0].Snapshot = servicetest.Blob(t, log.Store(), sandboxtest.Pack(t, map[string]string{"a.txt": "one\n"}))
	if change != nil {
		change(&cfg)
	}
	servicetest.OpenRun(t, log, run, cfg)
	servicetest.StartRollout(t, log, run, rollout, "a")
}

// shell is a call that runs a command.
func shell(id, command string) events.ToolCall {
	return events.ToolCall{ID: id, Name: "run_terminal_cmd",
		Arguments: fmt.Sprintf(`{"command":%q,"is_background":false}`, command)}
}

// turn states that the model asked for calls.
func turn(t *testing.T, log *eventlog.Log, run string, n int, route string, calls ...events.ToolCall) events.Event {
	t.Helper()
	e := servicetest.Event(t, run, events.TurnSampledType, rollout, events.Ordinal(n),
		events.TurnSampled{Turn: n, ToolCalls: calls, FinishReason: "tool_calls"})
	e.Route = route
	return servicetest.Append(t, log, e)
}

// answers waits for the answer to a turn.
func answers(t *testing.T, log *eventlog.Log, run string, n int) events.ToolsCompleted {
	t.Helper()
	all := servicetest.Wait(t, log, run, events.ToolsCompletedType, rollout, n+1)
	return servicetest.Data[events.ToolsCompleted](t, all[n])
}

// service makes a service and runs it.
func service(t *testing.T, log *eventlog.Log, change func(*Service)) (s *Service, stop func()) {
	t.Helper()
	env := servicetest.Env(t, log)
	s, err := newService(env, Options{Slots: 4, Pool: poolRoute, Machine: tasks.Machine{ToolchainCache: t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(s)
	}
	return s, servicetest.Start(t, func(ctx context.Context) error { return s.run(ctx, env) })
}

func (h *pool) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.boxes)
}

func (e *endings) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.watched)
}

// TestWorkspaceComesBackFromTheLog changes a workspace in one process and goes on in another: the
// second one has nothing but the log and the store.
func TestWorkspaceComesBackFromTheLog(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	open(t, log, "r", nil)
	first, stop := service(t, log, nil)
	turn(t, log, "r", 0, poolRoute,
		shell("c0", "echo two >> a.txt; mkdir -p d; echo new > d/b.txt; chmod 750 d/b.txt; ln -s a.txt link"),
		shell("c1", "cat a.txt"))
	done := answers(t, log, "r", 0)
	if done.Runner != first.runner || done.Workspace == nil || len(done.Results) != 2 ||
		done.Results[0].CallID != "c0" || !strings.HasPrefix(done.Results[1].Content, "one\ntwo\n") {
		t.Fatalf("turn 0 is answered %+v", done)
	}
	if want := map[bool]string{true: "overlay", false: "copy"}[os.Geteuid() == 0]; done.Filesystem != want {
		t.Errorf("the file system is %q, want %q", done.Filesystem, want)
	}
	stop()
	if first.held.count() != 0 || first.held.endings.count() != 0 {
		t.Errorf("a stopped service holds %d sandboxes and watches %d runs", first.held.count(),
			first.held.endings.count())
	}
	second, _ := service(t, log, nil)
	turn(t, log, "r", 1, poolRoute, shell("c2", "cat a.txt d/b.txt; readlink link; stat -c %a d/b.txt; rm a.txt"))
	done = answers(t, log, "r", 1)
	if want := "one\ntwo\nnew\na.txt\n750\n"; !strings.HasPrefix(done.Results[0].Content, want) ||
		done.Runner != second.runner {
		t.Errorf("turn 1 is answered %q by %s", done.Results[0].Content, done.Runner)
	}
	turn(t, log, "r", 2, runfile.RunnerRoute(second.runner, runfile.Needs{}), shell("c3", "ls"))
	if done = answers(t, log, "r", 2); !strings.HasPrefix(done.Results[0].Content, "d\nlink\n") {
		t.Errorf("turn 2 is answered %q", done.Results[0].Content)
	}
}

// TestWorkspaceOfAUsersQuery is the repository that the query brought, not the task's.
func TestWorkspaceOfAUsersQuery(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	cfg := servicetest.Config("a")
	cfg.Tasks[0].Snapshot = servicetest.Blob(t, log.Store(),
		sandboxtest.Pack(t, map[string]string{"a.txt": "the task's\n"}))
	servicetest.OpenRun(t, log, "r", cfg)
	theirs := servicetest.Blob(t, log.Store(), sandboxtest.Pack(t, map[string]string{"b.txt": "the user's\n"}))
	servicetest.Append(t, log, servicetest.Event(t, "r", events.QuerySubmittedType, "q1", "0", events.QuerySubmitted{
		Instruction: "Mend it.", Task: "a", Consent: true, Repository: &events.UserRepository{Archive: theirs},
	}))
	servicetest.StartRollout(t, log, "r", rollout, "q1")
	service(t, log, nil)
	turn(t, log, "r", 0, poolRoute, shell("c0", "cat *.txt"))
	if done := answers(t, log, "r", 0); !strings.HasPrefix(done.Results[0].Content, "the user's\n") {
		t.Errorf("answered %q", done.Results[0].Content)
	}
}

// TestTheLogsWorkspaceCounts does a turn that comes out differently each time in two runners. The
// slower one's sandbox is not what the log says, so it must not be used for the next turn.
func TestTheLogsWorkspaceCounts(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	open(t, log, "r", nil)
	turn(t, log, "r", 0, poolRoute, shell("c0", "head -c 16 /dev/urandom | od -An -tx1 > a.txt"))
	slow, _ := newServiceOnly(t, log)
	fast, _ := newServiceOnly(t, log)
	slowFacts := handle(t, slow, log)
	winner := handle(t, fast, log)[0]
	if _, _, err := log.Appender.Append(t.Context(), winner); err != nil {
		t.Fatal(err)
	}
	theirs, ours := servicetest.Data[events.ToolsCompleted](t, winner),
		servicetest.Data[events.ToolsCompleted](t, slowFacts[0])
	if *theirs.Workspace == *ours.Workspace {
		t.Fatal("the turn came out the same twice")
	}
	if facts := handle(t, slow, log); len(facts) != 0 { // overtaken: adopted
		t.Fatalf("%v", facts)
	}
	turn(t, log, "r", 1, poolRoute, shell("c1", "sha256sum a.txt"))
	got := servicetest.Data[events.ToolsCompleted](t, handle(t, slow, log)[0])
	want := servicetest.Data[events.ToolsCompleted](t, handle(t, fast, log)[0])
	if got.Results[0].Content != want.Results[0].Content {
		t.Errorf("one runner has %q, the other %q", got.Results[0].Content, want.Results[0].Content)
	}
}

func newServiceOnly(t *testing.T, log *eventlog.Log, changes ...func(*Options)) (*Service, pipeline.Env) {
	t.Helper()
	env := servicetest.Env(t, log)
	opts := Options{Slots: 1, Pool: poolRoute, Machine: tasks.Machine{ToolchainCache: t.TempDir()}}
	for _, change := range changes {
		change(&opts)
	}
	s, err := newService(env, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.held.closeAll)
	return s, env
}

func handle(t *testing.T, s *Service, log *eventlog.Log) []events.Event {
	t.Helper()
	return handleOf(t, s, log, "r")
}

func handleOf(t *testing.T, s *Service, log *eventlog.Log, run string) []events.Event {
	t.Helper()
	sampled := servicetest.All(t, log, run, events.TurnSampledType)
	last := sampled[len(sampled)-1]
	facts, err := s.Handle(t.Context(), pipeline.Message{Log: log.At(last.Run, last.Seq), Event: last, Seq: last.Seq,
		Time: last.Time, Delivered: 1})
	if err != nil {
		t.Fatal(err)
	}
	return facts
}

// TestMalformedCalls: whatever a model writes is answered.
func TestMalformedCalls(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	open(t, log, "r", nil)
	service(t, log, nil)
	calls := []events.ToolCall{
		{ID: "a", Name: "read_file", Arguments: `{"target_file": "a.`}, {ID: "b", Name: "", Arguments: ""},
		{ID: "c", Name: "fly", Arguments: "{}"},
		{ID: "d", Name: "read_file", Arguments: `[]`},
		{ID: "e", Name: "read_file", Arguments: `{"target_file":"../../etc/shadow"}`}, shell("f", "cat a.txt"),
	}
	turn(t, log, "r", 0, poolRoute, calls...)
	done := answers(t, log, "r", 0)
	for i, r := range done.Results {
		if want := i < 5; r.CallID != calls[i].ID || r.Error != want || r.Content == "" {
			t.Errorf("call %s %s %s is answered %+v", calls[i].ID, calls[i].Name, calls[i].Arguments, r)
		}
	}
	if len(done.Results) != len(calls) || done.Workspace != nil {
		t.Errorf("%d results, workspace %v", len(done.Results), done.Workspace)
	}
}

// TestRouteOfARunnerThatIsGone: its messages wait for a while, then others take them over.
func TestRouteOfARunnerThatIsGone(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	open(t, log, "r", nil)
	const gone = "0123456789ab"
	spec := topology.ConsumersOf(topology.ToolRunner)[0].For("r", runfile.RunnerRoute(gone, runfile.Needs{}))
	if _, err := log.Streams.EnsureConsumer(t.Context(), spec, runfile.RunnerRoute(gone, runfile.Needs{})); err != nil {
		t.Fatal(err)
	}
	turn(t, log, "r", 0, runfile.RunnerRoute(gone, runfile.Needs{}), shell("c0", "cat a.txt"))
	s, _ := service(t, log, func(s *Service) { s.heartbeats.since = time.Now().Add(-time.Hour) })
	if done := answers(t, log, "r", 0); done.Runner != s.runner {
		t.Errorf("answered by %s", done.Runner)
	}
	if _, err := log.Streams.EnsureConsumer(t.Context(), spec, runfile.RunnerRoute(gone, runfile.Needs{})); err != nil {
		t.Fatal(err)
	}
	alive := newHeartbeats(log.Conn(), log.JetStream(), "self")
	if routes := alive.orphans(t.Context(), "r", map[string]bool{"": true}); len(routes) != 0 {
		t.Errorf("a runner that has just started takes over %v", routes)
	}
	alive.since = time.Now().Add(-time.Hour)
	alive.seen[s.runner] = time.Now()
	if routes := alive.orphans(t.Context(), "r", map[string]bool{"": true}); len(routes) != 1 ||
		routes[0] != runfile.RunnerRoute(gone, runfile.Needs{}) {
		t.Errorf("orphans are %v", routes)
	}
	alive.seen[gone] = time.Now()
	if routes := alive.orphans(t.Context(), "r", map[string]bool{"": true}); len(routes) != 0 {
		t.Errorf("orphans are %v although all live", routes)
	}
}

// TestIdentityIsKept: a runner that starts again finds what was routed to it.
func TestIdentityIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	first, err := identity(dir)
	if err != nil || !runfile.ValidToken(runfile.RunnerRoute(first, runfile.Needs{})) {
		t.Fatalf("%q, %v", first, err)
	}
	if again, err := identity(dir); err != nil || again != first {
		t.Errorf("%q became %q: %v", first, again, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "runner"), []byte("../x y"), 0o644); err != nil {
		t.Fatal(err)
	}
	if healed, err := identity(dir); err != nil || !runfile.ValidToken(healed) {
		t.Errorf("a damaged name became %q: %v", healed, err)
	}
}

// TestInfrastructureThatFails ends rollouts with the stage and class of the cause, after all tries.
func TestInfrastructureThatFails(t *testing.T) {
	log := natstest.Log(t)
	service(t, log, nil)
	broken := servicetest.Blob(t, log.Store(), []byte("no archive"))
	lost := storage.Ref{Key: broken.Key, SHA256: strings.Repeat("0", 64), Size: broken.Size}
	for run, c := range map[string]struct {
		change func(*runfile.RunConfig)
		class  string
		text   string
	}{
		"missing": {func(c *runfile.RunConfig) { c.Tasks[0].Snapshot = servicetest.Config("a").Tasks[0].Snapshot },
			events.ClassObject, "snapshot of task a"},
		"corrupt": {func(c *runfile.RunConfig) { c.Tasks[0].Snapshot = lost }, events.ClassObject, "sha256"},
		"toolchain": {func(c *runfile.RunConfig) { c.Tasks[0].Toolchains = []string{"cobol"} },
			events.ClassSandbox, "cobol"},
		"isolation": {func(c *runfile.RunConfig) { c.MinIsolation = "machine" }, events.ClassIsolation,
			`"namespaces" here, and at least "machine" is demanded by min_isolation`},
		"archive": {func(c *runfile.RunConfig) { c.Tasks[0].Snapshot = broken }, events.ClassSandbox,
			"sandbox of " + rollout},
	} {
		t.Run(run, func(t *testing.T) {
			if run == "archive" || run == "isolation" {
				sandboxtest.Require(t)
			}
			open(t, log, run, c.change)
			turn(t, log, run, 0, poolRoute, shell("c", "true"))
			failed := servicetest.WaitData[events.RolloutFailed](t, log, run, events.RolloutFailedType, rollout)
			if failed.Stage != events.StageTools || failed.Class != c.class ||
				!strings.Contains(failed.Message, c.text) || !strings.HasSuffix(failed.Message, "(2 tries)") {
				t.Errorf("%s: failed as %+v", run, failed)
			}
			if retried := servicetest.All(t, log, run, events.RolloutRetriedType); len(retried) != 1 {
				t.Errorf("%s: %d failed tries", run, len(retried))
			}
		})
	}
}
