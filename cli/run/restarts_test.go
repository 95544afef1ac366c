package run

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestRestartsAreShown: who looks at a run sees whether agents that were started anew came back.
func TestRestartsAreShown(t *testing.T) {
	t.Parallel()
	r := clitest.NewRecorded(t)
	for i, ended := range []events.AgentEnded{{}, {Recalled: 2}, {Recalled: 1, Left: []int{1}}} {
		id := events.RolloutID("g000001", i)
		servicetest.StartRollout(t, r.Log, "first", id, "fix-a")
		r.State(events.WorkspaceAnsweredType, id, events.AgentCall, events.WorkspaceAnswered{Agent: &ended})
	}
	output, err := clitest.Run(t, New, "run", "show", "first", "--dir", r.Dir)
	if err != nil ||
		!strings.Contains(output, "\nagents: 2 ended behind a restart, and 1 of them had all recorded turns again\n") {
		t.Errorf("run show: %v: %s", err, output)
	}
}

// TestAgentsThatDoNotRepeatAreNamed behind more than a few restarts.
func TestAgentsThatDoNotRepeatAreNamed(t *testing.T) {
	for totals, named := range map[books.Totals]bool{
		{Restarted: fewRestarts}: false, {Restarted: 4, Whole: 2}: false, {Restarted: 4, Whole: 1}: true,
	} {
		if text := restartsOf(totals).String(); strings.Contains(text, "does not repeat its requests") != named {
			t.Errorf("%+v: %s", totals, text)
		}
	}
}
