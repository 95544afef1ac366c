package clitest

import (
	"context"
	"testing"
	"testing/fstest"

	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/intake"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
	"github.com/rondo-rl/rondo/storage"
)

// Recorded is a plane in a directory, with the services at work that decide on what is
// recorded, and a run "first" on it with the tasks fix-a and fix-b and the feeds trainer and
// shadow, whose batches have one group.
type Recorded struct {
	T   *testing.T
	Dir string
	Log *eventlog.Log
	Run string // that things happen in
}

// NewRecorded makes the plane and starts services on it.
func NewRecorded(t *testing.T, services ...func(context.Context, pipeline.Env) error) *Recorded {
	t.Helper()
	return NewRecordedWith(t, func(*runfile.RunConfig) {}, services...)
}

// NewRecordedWith changes the run's configuration before it is opened.
func NewRecordedWith(t *testing.T, change func(*runfile.RunConfig),
	services ...func(context.Context, pipeline.Env) error) *Recorded {
	t.Helper()
	dir := t.TempDir()
	p, err := plane.Hold(t.Context(), dir, plane.HoldOptions{Listen: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	cfg := servicetest.Config("fix-a", "fix-b")
	for i := range cfg.Tasks {
		snapshot, err := sandbox.Pack(fstest.MapFS{"main.py": {Data: []byte("# " + cfg.Tasks[i].Name + "\n"),
			Mode: 0o644}})
		if err != nil {
			t.Fatal(err)
		}
		cfg.Tasks[i].Snapshot = servicetest.Blob(t, p.Store, snapshot)
		cfg.Tasks[i].Tests = servicetest.Blob(t, p.Store, []byte("tests of "+cfg.Tasks[i].Name))
	}
	cfg.Feeds = []runfile.Feed{{Name: "trainer", GroupsPerBatch: 1}, {Name: "shadow", GroupsPerBatch: 1}}
	cfg.Staleness.Max = 100
	change(&cfg)
	servicetest.OpenRun(t, p.Log, "first", cfg)
	r := &Recorded{T: t, Dir: dir, Log: p.Log, Run: "first"}
	for _, run := range services {
		r.start(run)
	}
	return r
}

// Deciding are the services that make batches of what is recorded.
var Deciding = []func(context.Context, pipeline.Env) error{intake.Run, advantagecalculator.Run, trainerfeeder.Run}

func (r *Recorded) start(run func(context.Context, pipeline.Env) error) {
	env := servicetest.Env(r.T, r.Log)
	servicetest.Start(r.T, func(ctx context.Context) error { return run(ctx, env) })
}

// State appends an event to the chain of its entity.
func (r *Recorded) State(typ events.Type, entity, ordinal string, data any) events.Event {
	r.T.Helper()
	return servicetest.Append(r.T, r.Log, servicetest.Event(r.T, r.Run, typ, entity, ordinal, data))
}

// Group opens a group and starts its rollouts at a policy version.
func (r *Recorded) Group(n int64, task string, size int, version int64) (group string, rollouts []string) {
	r.T.Helper()
	group = events.GroupID(n)
	r.State(events.GroupOpenedType, group, "0", events.GroupOpened{Task: task, Size: size, PolicyVersion: version})
	for i := range size {
		id := events.RolloutID(group, i)
		r.State(events.RolloutStartedType, id, "0", events.RolloutStarted{Group: group, Member: i, Task: task,
			PolicyVersion: version})
		rollouts = append(rollouts, id)
	}
	return group, rollouts
}

// Score lets a rollout run one turn with a tool call and one without, and scores it.
func (r *Recorded) Score(id, task string, version int64, reward float64) events.Event {
	r.T.Helper()
	code := 1
	r.State(events.TurnSampledType, id, "0", events.TurnSampled{
		ToolCalls: []events.ToolCall{{ID: "c0", Name: "run", Arguments: "{\"command\":\"go\ttest\"}"}},
		TokenIDs:  []int32{3, 4, 5}, PolicyVersion: version, FinishReason: "tool_calls",
	})
	r.State(events.ToolsCompletedType, id, "0", events.ToolsCompleted{
		Results: []events.ToolResult{{CallID: "c0", Name: "run", Error: true, ExitCode: &code, DurationMS: 7}},
		Runner:  "runner-1", Isolation: "namespaces",
	})
	r.State(events.TurnSampledType, id, "1", events.TurnSampled{Turn: 1, TokenIDs: []int32{6},
		PolicyVersion: version, FinishReason: "stop"})
	tr := servicetest.Trajectory(r.Run, id, task)
	tr.DispatchVersion = version
	finished := servicetest.Finished(r.T, r.Log.Store(), r.Run, id, tr)
	finished.Turns = 2
	r.State(events.RolloutFinishedType, id, "0", finished)
	verdict := servicetest.Blob(r.T, r.Log.Store(), []byte("verdict on "+id))
	return r.State(events.RolloutScoredType, id, "0", events.RolloutScored{Reward: reward, TaskDigest: "sha256:" + task,
		Trajectory: finished.Trajectory, Log: &verdict})
}

// Whole lets a group run to its end; its completion may take a while.
func (r *Recorded) Whole(n int64, task string, version int64, rewards ...float64) (rollouts []string) {
	r.T.Helper()
	_, rollouts = r.Group(n, task, len(rewards), version)
	for i, reward := range rewards {
		r.Score(rollouts[i], task, version, reward)
	}
	return rollouts
}

// Publish puts weights onto the run's stream, or onto the catalogue alone, as another run's.
func (r *Recorded) Publish(run string, version int64) storage.Ref {
	r.T.Helper()
	manifest := servicetest.Blob(r.T, r.Log.Store(), []byte("manifest "+events.Ordinal(version)))
	servicetest.Append(r.T, r.Log, servicetest.Event(r.T, run, events.WeightsPublishedType,
		"small", events.Ordinal(version),
		events.WeightsPublished{Policy: "small", Version: version, Run: r.Run, Manifest: manifest}))
	return manifest
}

// Batch waits for a batch of a feed.
func (r *Recorded) Batch(feed string, step int) events.BatchReady {
	r.T.Helper()
	return servicetest.Data[events.BatchReady](r.T, servicetest.Wait(r.T, r.Log, r.Run, events.BatchReadyType, feed,
		step)[step-1])
}

// Consumed appends that the trainer of a feed has taken a step.
func (r *Recorded) Consumed(feed string, step int64) {
	r.T.Helper()
	r.State(events.BatchConsumedType, feed, "c"+events.Ordinal(step), events.BatchConsumed{Step: step})
}
