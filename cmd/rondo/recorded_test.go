package main

import (
	"context"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runtime"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/intake"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
	"github.com/rondo-rl/rondo/storage"
)

// recorded is a plane in a directory, with the services at work that decide on what is recorded, and a run "first" on
// it with the tasks fix-a and fix-b and the feeds trainer and shadow, whose batches have one group.
type recorded struct {
	t   *testing.T
	dir string
	log *eventlog.Log
}

func newRecorded(t *testing.T, services ...func(context.Context, runtime.Env) error) *recorded {
	t.Helper()
	return newRecordedWith(t, func(*events.RunConfig) {}, services...)
}

// newRecordedWith changes the run's configuration before it is opened.
func newRecordedWith(t *testing.T, change func(*events.RunConfig), services ...func(context.Context, runtime.Env) error) *recorded {
	t.Helper()
	dir := t.TempDir()
	p, err := hold(t.Context(), dir, holdOptions{listen: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	cfg := servicetest.Config("fix-a", "fix-b")
	for i := range cfg.Tasks {
		cfg.Tasks[i].Snapshot = servicetest.Blob(t, p.store, []byte("snapshot of "+cfg.Tasks[i].Name))
		cfg.Tasks[i].Tests = servicetest.Blob(t, p.store, []byte("tests of "+cfg.Tasks[i].Name))
	}
	cfg.Feeds = []events.Feed{{Name: "trainer", GroupsPerBatch: 1}, {Name: "shadow", GroupsPerBatch: 1}}
	cfg.Staleness.Max = 100
	change(&cfg)
	servicetest.OpenRun(t, p.log, "first", cfg)
	r := &recorded{t: t, dir: dir, log: p.log}
	for _, run := range services {
		r.start(run)
	}
	return r
}

// deciding are the services that make batches of what is recorded.
var deciding = []func(context.Context, runtime.Env) error{intake.Run, advantagecalculator.Run, trainerfeeder.Run}

func (r *recorded) start(run func(context.Context, runtime.Env) error) {
	env := servicetest.Env(r.t, r.log)
	servicetest.Start(r.t, func(ctx context.Context) error { return run(ctx, env) })
}

func (r *recorded) state(typ events.Type, entity, ordinal string, data any) events.Event {
	r.t.Helper()
	return servicetest.Append(r.t, r.log, servicetest.Event(r.t, "first", typ, entity, ordinal, data))
}

// group opens a group and starts its rollouts at a policy version.
func (r *recorded) group(n int64, task string, size int, version int64) (group string, rollouts []string) {
	r.t.Helper()
	group = events.GroupID(n)
	r.state(events.GroupOpenedType, group, "0", events.GroupOpened{Task: task, Size: size, PolicyVersion: version})
	for i := range size {
		id := events.RolloutID(group, i)
		r.state(events.RolloutStartedType, id, "0", events.RolloutStarted{Group: group, Member: i, Task: task, PolicyVersion: version})
		rollouts = append(rollouts, id)
	}
	return group, rollouts
}

// score lets a rollout run one turn with a tool call and one without, and scores it.
func (r *recorded) score(id, task string, version int64, reward float64) events.Event {
	r.t.Helper()
	code := 1
	r.state(events.TurnSampledType, id, "0", events.TurnSampled{
		ToolCalls: []events.ToolCall{{ID: "c0", Name: "run", Arguments: "{\"command\":\"go\ttest\"}"}}, TokenIDs: []int32{3, 4, 5}, PolicyVersion: version, FinishReason: "tool_calls",
	})
	r.state(events.ToolsCompletedType, id, "0", events.ToolsCompleted{
		Results: []events.ToolResult{{CallID: "c0", Name: "run", Error: true, ExitCode: &code, DurationMS: 7}}, Runner: "runner-1", Isolation: "namespaces",
	})
	r.state(events.TurnSampledType, id, "1", events.TurnSampled{Turn: 1, TokenIDs: []int32{6}, PolicyVersion: version, FinishReason: "stop"})
	tr := servicetest.Trajectory("first", id, task)
	tr.DispatchVersion = version
	finished := servicetest.Finished(r.t, r.log.Store(), "first", id, tr)
	finished.Turns = 2
	r.state(events.RolloutFinishedType, id, "0", finished)
	verdict := servicetest.Blob(r.t, r.log.Store(), []byte("verdict on "+id))
	return r.state(events.RolloutScoredType, id, "0", events.RolloutScored{Reward: reward, TaskDigest: "sha256:" + task, Trajectory: finished.Trajectory, Log: &verdict})
}

// whole lets a group run to its end; its completion may take a while.
func (r *recorded) whole(n int64, task string, version int64, rewards ...float64) (rollouts []string) {
	r.t.Helper()
	_, rollouts = r.group(n, task, len(rewards), version)
	for i, reward := range rewards {
		r.score(rollouts[i], task, version, reward)
	}
	return rollouts
}

// publish puts weights onto the run's stream, or onto the catalogue alone, as another run's.
func (r *recorded) publish(run string, version int64) storage.Ref {
	r.t.Helper()
	manifest := servicetest.Blob(r.t, r.log.Store(), []byte("manifest "+events.Ordinal(version)))
	servicetest.Append(r.t, r.log, servicetest.Event(r.t, run, events.WeightsPublishedType, "small", events.Ordinal(version),
		events.WeightsPublished{Policy: "small", Version: version, Run: "first", Manifest: manifest}))
	return manifest
}

// batch waits for a batch of a feed.
func (r *recorded) batch(feed string, step int) events.BatchReady {
	r.t.Helper()
	return servicetest.Data[events.BatchReady](r.t, servicetest.Wait(r.t, r.log, "first", events.BatchReadyType, feed, step)[step-1])
}

func (r *recorded) consumed(feed string, step int64) {
	r.t.Helper()
	r.state(events.BatchConsumedType, feed, "c"+events.Ordinal(step), events.BatchConsumed{Step: step})
}
