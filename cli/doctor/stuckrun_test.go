package doctor

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/cli/explain"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/cli/run"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestStuckRunIsShown: who looks at the runs sees why one is paused, and a run that
// cannot be read hides no other.
func TestStuckRunIsShown(t *testing.T) {
	t.Parallel()
	r := clitest.NewRecorded(t)
	servicetest.OpenRun(t, r.Log, "other", servicetest.Config("fix-a"))
	why := "trainerfeeder/trainer is stuck\x1b[2J: see to it"
	r.State(events.RunPausedType, "first", "stuck", events.RunPaused{Reason: why, Class: events.PauseStuck})
	command := func(args ...string) (string, error) {
		return clitest.RunProgram(t, app.New(run.New, explain.New), append(args, "--dir", r.Dir)...)
	}
	const shown = "trainerfeeder/trainer is stuck␛[2J: see to it"
	if _, err := command("explain", "batch", "first", "1"); err == nil ||
		!strings.Contains(err.Error(), "no batch 1: it has 0; the run is paused: "+shown) {
		t.Errorf("explain batch: %v", err)
	}
	r.State(events.RolloutScoredType, "g000001-0", "0", map[string]any{"reward": "a lot"})
	output, err := command("run", "list", "--json")
	var list []run.RunSummary
	if err != nil || json.Unmarshal([]byte(output), &list) != nil || len(list) != 2 {
		t.Fatalf("run list: %v: %s", err, output)
	}
	if first, other := list[0], list[1]; first.State != "paused" || first.Reason != why ||
		!strings.Contains(first.Unreadable, "reward") || other.State != "open" ||
		other.Unreadable != "" || other.Policy == "" {
		t.Errorf("run list: %+v", list)
	}
	if output, err = command("run", "show", "first"); err != nil || !strings.Contains(output, "paused: "+shown) ||
		!strings.Contains(output, "cannot be read: ") {
		t.Errorf("run show: %v: %s", err, output)
	}
	e, err := plane.ReadEndpoint(r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	found := tryRuns(t.Context(), e.NATS, app.NATSAccess{}, e.Store)
	wantFinding(t, found, "runs", levelWarning, "run first is paused: "+shown, "rondo run resume first")
	wantFinding(t, found, "runs", levelWarning, "no tool runner serves tasks of run other",
		"rondo service toolrunner --pool pool-shell")
	if len(found) != 2 {
		t.Errorf("found %+v", found)
	}
	r.State(events.RunResumedType, "first", "r", events.RunResumed{})
	for _, run := range []string{"first", "other"} {
		waitForTools(t, r.Log, run, runfile.PoolRoute("pool-shell", runfile.Needs{}))
	}
	wantFinding(t, tryRuns(t.Context(), e.NATS, app.NATSAccess{}, e.Store), "runs", levelOK,
		"2, none of them paused, and tool runners", "")
}

// waitForTools asks for turns of a route, as a tool runner with free slots does.
func waitForTools(t *testing.T, log *eventlog.Log, run, route string) {
	t.Helper()
	c, err := log.Streams.EnsureConsumer(t.Context(), topology.ConsumersOf(topology.ToolRunner)[0].For(run, route),
		route)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := c.Messages()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(messages.Stop)
	go func() { _, _ = messages.Next() }()
	for info, err := c.Info(t.Context()); info == nil || info.NumWaiting == 0; info, err = c.Info(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestDoctorNamesWhatIsMissing: tasks that no tool runner can work on are told with what they need.
func TestDoctorNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	r := clitest.NewRecorded(t)
	cfg := servicetest.Config("a", "b")
	cfg.Tasks[1].Labels, cfg.Tasks[1].Toolchains = []string{"gpu"}, []string{"go"}
	servicetest.OpenRun(t, r.Log, "r", cfg)
	waitForTools(t, r.Log, "r", runfile.PoolRoute(cfg.Pool, runfile.Needs{}))
	var waiting []unservedTasks
	for _, needs := range cfg.DifferentNeeds() {
		waiting = append(waiting, unservedTasks{"r", cfg.Pool, needs})
	}
	left, err := unserved(t.Context(), r.Log, waiting)
	if err != nil || len(left) != 1 || len(waiting) != 2 {
		t.Fatalf("unserved of %+v: %+v, %v", waiting, left, err)
	}
	wantFinding(t, []finding{left[0].finding()}, "runs", levelWarning,
		"tasks of run r that need toolchain go, label gpu", "--pool pool-shell --label gpu")
}

// TestDoctorHearsBusyRunners: a runner whose slots are all in work for other runs asks
// for nothing and has nothing of this run in work, and yet serves it, as long as it lives
// and serves the run's pool.
func TestDoctorHearsBusyRunners(t *testing.T) {
	t.Parallel()
	r := clitest.NewRecorded(t)
	cfg := servicetest.Config("a")
	servicetest.OpenRun(t, r.Log, "r", cfg)
	serves := func(routes ...string) {
		for _, route := range routes {
			if _, err := r.Log.Streams.EnsureConsumer(t.Context(),
				topology.ConsumersOf(topology.ToolRunner)[0].For("r", route), route); err != nil {
				t.Fatal(err)
			}
		}
	}
	look := func(want int) {
		t.Helper()
		left, err := unserved(t.Context(), r.Log, []unservedTasks{{"r", cfg.Pool, runfile.Needs{}}})
		if err != nil || len(left) != want {
			t.Errorf("unserved: %+v, %v, want %d", left, err, want)
		}
	}
	serves(runfile.PoolRoute(cfg.Pool, runfile.Needs{}), runfile.RunnerRoute("busy", runfile.Needs{}))
	look(1) // a runner was there, and is silent
	beat := time.NewTicker(100 * time.Millisecond)
	t.Cleanup(beat.Stop)
	go func() {
		for t.Context().Err() == nil {
			_ = r.Log.Conn().Publish(topology.AliveSubject+"busy", nil)
			<-beat.C
		}
	}()
	for range 3 {
		look(0)
	}
	serves(runfile.PoolRoute("pool-gpu", runfile.Needs{}))
	look(1) // it may be the other pool's
}
