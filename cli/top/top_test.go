package top

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
)

func TestMain(m *testing.M) { clitest.Main(m, New) }

// busy is a plane with a run whose trainer has taken a step, while a rollout is at the tools and a dead letter is recorded.
func busy(t *testing.T) *clitest.Recorded {
	t.Helper()
	r := clitest.NewRecorded(t, clitest.Deciding...)
	r.Publish("first", 1)
	r.Publish(events.Catalogue, 2)
	r.Whole(1, "fix-a", 1, 1, 0)
	r.Batch("trainer", 1)
	r.Consumed("trainer", 1)
	_, members := r.Group(2, "fix-b", 2, 1)
	r.State(events.TurnSampledType, members[0], "0", events.TurnSampled{ToolCalls: []events.ToolCall{{ID: "c0", Name: "run"}}})
	r.Run = events.Catalogue
	r.State(events.WeightsActivatedType, "small", "a", events.WeightsActivated{Version: 1, Replica: "http://10.0.0.1:8000"})
	r.State(events.DeadLetteredType, "RONDO_IN-7", "0", events.DeadLettered{Stream: "RONDO_IN", Sequence: 7, Reason: "no such run"})
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
	if run.Name != "first" || run.State != "open" || run.Version != 1 || run.Last == nil || run.Last.Step != 1 || run.Last.Figures["reward/mean"] != 0.5 {
		t.Errorf("run %+v", run)
	}
	if run.Stages[events.StageGenerator] != 1 || run.Stages[events.StageTools] != 1 || run.Stages[books.StageTrainer] != 0 {
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
	if _, err := clitest.Run(t, New, "top", "--every", "1ms"); err == nil || !strings.Contains(err.Error(), "at least 100ms") {
		t.Errorf("%v", err)
	}
}
