package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestStuckRunIsShown: who looks at the runs sees why one is paused, and a run that cannot be read hides no other.
func TestStuckRunIsShown(t *testing.T) {
	t.Parallel()
	r := newRecorded(t)
	servicetest.OpenRun(t, r.log, "other", servicetest.Config("fix-a"))
	why := "trainerfeeder/trainer is stuck\x1b[2J: see to it"
	r.state(events.RunPausedType, "first", "stuck", events.RunPaused{Reason: why, Class: events.PauseStuck})
	command := func(args ...string) (string, error) { return rondo(t, append(args, "--dir", r.dir)...) }
	const shown = "trainerfeeder/trainer is stuck␛[2J: see to it"
	if _, err := command("explain", "batch", "first", "1"); err == nil || !strings.Contains(err.Error(), "no batch 1: it has 0; the run is paused: "+shown) {
		t.Errorf("explain batch: %v", err)
	}
	r.state(events.RolloutScoredType, "g000001-0", "0", map[string]any{"reward": "a lot"})
	output, err := command("run", "list", "--json")
	var list []runSummary
	if err != nil || json.Unmarshal([]byte(output), &list) != nil || len(list) != 2 {
		t.Fatalf("run list: %v: %s", err, output)
	}
	if first, other := list[0], list[1]; first.State != "paused" || first.Reason != why || !strings.Contains(first.Unreadable, "reward") || other.State != "open" || other.Unreadable != "" || other.Policy == "" {
		t.Errorf("run list: %+v", list)
	}
	if output, err = command("run", "show", "first"); err != nil || !strings.Contains(output, "paused: "+shown) || !strings.Contains(output, "cannot be read: ") {
		t.Errorf("run show: %v: %s", err, output)
	}
	e, err := readEndpoint(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	found := tryRuns(t.Context(), e.NATS, natsAccess{}, e.Store)
	wantFinding(t, found, "runs", levelWarning, "run first is paused: "+shown, "rondo run resume first")
	wantFinding(t, found, "runs", levelWarning, "no tool runner serves tasks of run other", "rondo service toolrunner --pool pool-shell")
	if len(found) != 2 {
		t.Errorf("found %+v", found)
	}
	r.state(events.RunResumedType, "first", "r", events.RunResumed{})
	for _, run := range []string{"first", "other"} {
		waitForTools(t, r.log, run, events.PoolRoute("pool-shell", events.Needs{}))
	}
	wantFinding(t, tryRuns(t.Context(), e.NATS, natsAccess{}, e.Store), "runs", levelOK, "2, none of them paused, and tool runners", "")
}

// waitForTools asks for turns of a route, as a tool runner with free slots does.
func waitForTools(t *testing.T, log *eventlog.Log, run, route string) {
	t.Helper()
	c, err := log.EnsureConsumer(t.Context(), events.ConsumersOf(events.ToolRunner)[0].For(run, route), route)
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
	r := newRecorded(t)
	cfg := servicetest.Config("a", "b")
	cfg.Tasks[1].Labels, cfg.Tasks[1].Toolchains = []string{"gpu"}, []string{"go"}
	servicetest.OpenRun(t, r.log, "r", cfg)
	waitForTools(t, r.log, "r", events.PoolRoute(cfg.Pool, events.Needs{}))
	findings := unserved(t.Context(), r.log, "r")
	wantFinding(t, findings, "runs", levelWarning, "tasks of run r that need toolchain go, label gpu", "--pool pool-shell --label gpu")
	if len(findings) != 1 {
		t.Errorf("found %+v", findings)
	}
}
