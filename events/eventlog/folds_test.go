package eventlog_test

import (
	"fmt"
	"reflect"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestFoldsGoOn reads a rollout behind each of its links with a Log that remembers and with one
// that does not: they agree, and what was read before stays as it was.
func TestFoldsGoOn(t *testing.T) {
	log := natstest.Log(t)
	servicetest.OpenRun(t, log, "r", servicetest.Config("a"))
	started := servicetest.StartRollout(t, log, "r", "g000001-0", "a")
	var before []events.Rollout
	for turn := range 20 {
		calls := []events.ToolCall{{ID: fmt.Sprint(turn), Name: "read_file", Arguments: "{}"}}
		for _, e := range []events.Event{
			servicetest.Event(t, "r", events.TurnSampledType, started.Entity, events.Ordinal(turn),
				events.TurnSampled{Turn: turn, Content: fmt.Sprint(turn), ToolCalls: calls}),
			servicetest.Event(t, "r", events.ToolsCompletedType, started.Entity, events.Ordinal(turn),
				events.ToolsCompleted{Turn: turn, Results: []events.ToolResult{{CallID: fmt.Sprint(turn)}}}),
		} {
			if e.Type == events.TurnSampledType {
				e.Route = "pool-shell"
			}
			servicetest.Append(t, log, e)
			known, err := log.Rollout(t.Context(), "r", started.Entity)
			if err != nil {
				t.Fatal(err)
			}
			before = append(before, known)
		}
	}
	for i, known := range before {
		fresh, err := eventlog.New(log.Conn(), log.Store())
		if err != nil {
			t.Fatal(err)
		}
		links, err := fresh.History(t.Context(), "r", known.Tail)
		if err != nil {
			t.Fatal(err)
		}
		want, err := events.FoldRollout(links)
		if err != nil {
			t.Fatal(err)
		}
		if len(known.Turns) != i/2+1 || len(known.Tools) != (i+1)/2 || !reflect.DeepEqual(known.Turns, want.Turns) ||
			!reflect.DeepEqual(known.Tools, want.Tools) || known.Progress != want.Progress {
			t.Fatalf("behind link %d: %d turns and %d answers, not %d and %d", i, len(known.Turns), len(known.Tools),
				len(want.Turns), len(want.Tools))
		}
	}
}

// TestFoldsAreShared reads one rollout from many sides while it grows, and changes what
// was read, as services do.
func TestFoldsAreShared(t *testing.T) {
	log := natstest.Log(t)
	servicetest.OpenRun(t, log, "r", servicetest.Config("a"))
	id := servicetest.StartRollout(t, log, "r", "g000001-0", "a").Entity
	for turn := range 10 {
		sampled := servicetest.Event(t, "r", events.TurnSampledType, id, events.Ordinal(turn),
			events.TurnSampled{Turn: turn})
		sampled.Route = "pool-shell"
		servicetest.Append(t, log, sampled)
		var readers sync.WaitGroup
		for range 4 {
			readers.Go(func() {
				r, err := log.Rollout(t.Context(), "r", id)
				if err != nil || len(r.Turns) != turn+1 {
					t.Errorf("%d turns of %d: %v", len(r.Turns), turn+1, err)
					return
				}
				r.Turns = append(r.Turns, events.TurnSampled{Turn: 99})
				r.Begin(events.RolloutCopied{Turns: r.Turns, Tools: []events.ToolsCompleted{{Turn: 99}}})
			})
		}
		readers.Wait()
	}
	r, err := log.Rollout(t.Context(), "r", id)
	if err != nil || len(r.Turns) != 10 || r.Turns[9].Turn != 9 || len(r.Tools) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestFoldsOfAnotherStream: a run that is made again under the same name has other
// rollouts at the same sequences.
func TestFoldsOfAnotherStream(t *testing.T) {
	log := natstest.Log(t)
	other, err := eventlog.New(log.Conn(), log.Store())
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"first", "second"} {
		if err := log.Streams.EnsureRun(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
		opened := servicetest.Event(t, "r", events.RunOpenedType, "r",
			"0", events.RunOpened{Config: servicetest.Config("a")})
		servicetest.Append(t, log, opened)
		id := servicetest.StartRollout(t, log, "r", "g000001-0", "a").Entity
		for turn := range 2 {
			sampled := servicetest.Event(t, "r", events.TurnSampledType, id, events.Ordinal(turn),
				events.TurnSampled{Turn: turn, Content: content})
			sampled.Route = "pool-shell"
			servicetest.Append(t, log, sampled)
		}
		r, err := other.Rollout(t.Context(), "r", id)
		if err != nil || len(r.Turns) != 2 || r.Turns[1].Content != content {
			t.Errorf("%+v, %v", r.Turns, err)
		}
		if err := log.Streams.DeleteRun(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
	}
}
