package top

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

func TestMain(m *testing.M) { clitest.Main(m, New) }

// busy is a plane with a run whose trainer has taken a step, while a rollout is at the tools and a
// dead letter is recorded.
func busy(t *testing.T) *clitest.Recorded {
	t.Helper()
	r := clitest.NewRecorded(t, clitest.Deciding...)
	r.Publish("first", 1)
	r.Publish(events.Catalogue, 2)
	r.Whole(1, "fix-a", 1, 1, 0)
	r.Batch("trainer", 1)
	r.Consumed("trainer", 1)
	_, members := r.Group(2, "fix-b", 2, 1)
	r.State(events.TurnSampledType, members[0], "0", events.TurnSampled{ToolCalls: []events.ToolCall{{ID: "c0",
		Name: "run"}}})
	r.Run = events.Catalogue
	r.State(events.WeightsActivatedType, "small", "a",
		events.WeightsActivated{Version: 1, Replica: "http://10.0.0.1:8000"})
	r.State(events.DeadLetteredType, "RONDO_IN-7", "0",
		events.DeadLettered{Stream: "RONDO_IN", Sequence: 7, Reason: "no such run"})
	return r
}

func TestOnce(t *testing.T) {
	r := busy(t)
	output, err := clitest.Run(t, New, "top", "--dir", r.Dir, "--json")
	if err != nil {
		t.Fatal(err)
	}
	var s Snapshot
	if err := json.Unmarshal([]byte(output), &s); err != nil {
		t.Fatal(err)
	}
	if len(s.Runs) != 1 || len(s.Unknown) != 0 {
		t.Fatalf("%s", output)
	}
	run := s.Runs[0]
	if run.Name != "first" || run.State != "open" || run.Version != 1 || run.Last == nil || run.Last.Step != 1 ||
		run.Last.Figures["reward/mean"] != 0.5 {
		t.Errorf("run %+v", run)
	}
	if run.Stages[events.StageGenerator] != 1 || run.Stages[events.StageTools] != 1 ||
		run.Stages[books.StageTrainer] != 0 {
		t.Errorf("stages %v", run.Stages)
	}
	if len(s.Replicas) != 1 || s.Replicas[0].Version != 1 || s.Replicas[0].Behind != 1 {
		t.Errorf("replicas %+v", s.Replicas)
	}
	if s.DeadLetters.Total != 1 || s.DeadLetters.Last != "no such run" {
		t.Errorf("dead letters %+v", s.DeadLetters)
	}
	if len(s.Consumers) == 0 {
		t.Errorf("no consumers")
	}
	for _, args := range [][]string{{"--once"}, {}} { // this output is no terminal
		text, err := clitest.Run(t, New, append([]string{"top", "--dir", r.Dir}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"RUN ", "first", "http://10.0.0.1:8000", "no such run"} {
			if !strings.Contains(text, part) {
				t.Errorf("%v: it does not show %q:\n%s", args, part, text)
			}
		}
		if strings.Contains(text, "\x1b") {
			t.Errorf("a pipe gets styles: %q", text)
		}
	}
}

func TestTopRefusesAHaste(t *testing.T) {
	if _, err := clitest.Run(t, New, "top", "--every", "1ms"); err == nil ||
		!strings.Contains(err.Error(), "at least 100ms") {
		t.Errorf("%v", err)
	}
}

// TestFirstLook: until the catalogue and the runs have been read, a look says so; then it shows
// what they have, and what comes behind that.
func TestFirstLook(t *testing.T) {
	r := busy(t)
	p, err := plane.Connect(t.Context(), &app.Global{Dir: r.Dir})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	w := newWatcher(p, r.Dir)
	if !w.snapshot(t.Context()).Reading {
		t.Error("a catalogue that nobody has read is taken for an empty one")
	}
	servicetest.Start(t, func(ctx context.Context) error { w.follow(ctx); return nil })
	var s Snapshot
	natstest.Eventually(t, "the log is read", func() bool { s = w.snapshot(t.Context()); return !s.Reading })
	if len(s.Runs) != 1 || s.Runs[0].State != "open" || s.Runs[0].Last == nil || s.DeadLetters.Total != 1 {
		t.Errorf("the first whole look shows %+v", s)
	}
	r.State(events.DeadLetteredType, "RONDO_IN-8", "0",
		events.DeadLettered{Stream: "RONDO_IN", Sequence: 8, Reason: "no such run"})
	natstest.Eventually(t, "another dead letter is shown",
		func() bool { s = w.snapshot(t.Context()); return s.DeadLetters.Total == 2 })
	if s.Reading {
		t.Error("a new event is read as the first ones")
	}
}
