package intake

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestForks: a fork is taken of a turn behind which there is something to go on with.
func TestForks(t *testing.T) {
	log := natstest.Log(t)
	cfg := servicetest.Config("a")
	cfg.Limits.Turns = 4
	const id = "g000001-0"
	calls := []events.ToolCall{{ID: "c", Name: "n", Arguments: "{}"}}
	turns := func(run string) {
		servicetest.StartRollout(t, log, run, id, "a")
		for n := range 4 {
			turn := servicetest.Event(t, run, events.TurnSampledType, id, events.Ordinal(n),
				events.TurnSampled{Turn: n, ToolCalls: calls})
			turn.Route = runfile.RouteFinal
			servicetest.Append(t, log, turn)
			if n < 3 {
				servicetest.Append(t, log, servicetest.Event(t, run, events.ToolsCompletedType, id,
					events.Ordinal(n), events.ToolsCompleted{
						Turn: n, Results: []events.ToolResult{{CallID: "c", Name: "n"}},
					}))
			}
		}
	}
	for _, run := range []string{"r", "old", "short"} {
		changed := cfg
		if run == "short" {
			changed.Limits.Turns = 5
		}
		servicetest.OpenRun(t, log, run, changed)
		turns(run)
	}
	evaluation := cfg
	evaluation.Feeds, evaluation.Epochs = nil, 1
	servicetest.OpenRun(t, log, "evaluation", evaluation)
	servicetest.StartRollout(t, log, "r", "g000002-0", "a")
	servicetest.StartRollout(t, log, "r", "g000003-0", "a")
	final := servicetest.Event(t, "r", events.TurnSampledType, "g000003-0", "0", events.TurnSampled{Content: "done"})
	final.Route = runfile.RouteFinal
	servicetest.Append(t, log, final)
	servicetest.StartRollout(t, log, "r", "x1-0", "a")
	servicetest.CloseRun(t, log, "old")
	start(t, log)

	fork := events.RolloutForked{Turn: 2, Count: 8, Task: "a"}
	outsider{t, log, "r"}.must(events.RolloutForkedType, id, fork)
	outsider{t, log, "r"}.must(events.RolloutForkedType, id, events.RolloutForked{Turn: 0, Count: 1, Task: "a"})
	if n := len(servicetest.All(t, log, "r", events.RolloutForkedType)); n != 2 {
		t.Errorf("%d forks are stated", n)
	}
	for name, c := range map[string]struct {
		run, rollout string
		data         any
		want         string
	}{
		"a rollout that there is not": {"r", "g000009-0", fork, `no rollout "g000009-0"`},
		"a turn that there is not": {"r", id, events.RolloutForked{Turn: 4, Count: 8, Task: "a"},
			"has 4 turns, counted from 0"},
		"a turn below 0":       {"r", id, events.RolloutForked{Turn: -1, Count: 8, Task: "a"}, "turn"},
		"the last turn of all": {"r", id, events.RolloutForked{Turn: 3, Count: 8, Task: "a"}, "at most 4 turns"},
		"an open call": {"short", id, events.RolloutForked{Turn: 3, Count: 8, Task: "a"},
			"its tool calls are not answered"},
		"no turn yet": {"r", "g000002-0", fork, "has 0 turns"},
		"a turn that ended it": {"r", "g000003-0", events.RolloutForked{Turn: 0, Count: 8, Task: "a"},
			"nothing to go on with"},
		"none":     {"r", id, events.RolloutForked{Turn: 2, Count: 0, Task: "a"}, "count"},
		"too many": {"r", id, events.RolloutForked{Turn: 2, Count: 1025, Task: "a"}, "count"},
		"another task": {"r", id, events.RolloutForked{Turn: 2, Count: 8, Task: "b"},
			`was started on task "a"`},
		"an outsider's rollout": {"r", "x1-0", fork, "ran elsewhere"},
		"a closed run":          {"old", id, fork, "run old is closed"},
		"an evaluation":         {"evaluation", id, fork, "is an evaluation"},
	} {
		if refused := (outsider{t, log, c.run}).state(events.RolloutForkedType, c.rollout,
			c.data); !strings.Contains(refused, c.want) {
			t.Errorf("%s: %q; want %q", name, refused, c.want)
		}
	}
}
