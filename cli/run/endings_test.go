package run

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestEndingsAreShown: who looks at a run sees why its rollouts ended, the
// most frequent reason first.
func TestEndingsAreShown(t *testing.T) {
	t.Parallel()
	r := clitest.NewRecorded(t)
	for i, stop := range []string{events.StopFinished, events.StopContext, events.StopContext} {
		id := events.RolloutID("g000001", i)
		servicetest.StartRollout(t, r.Log, "first", id, "fix-a")
		tr := servicetest.Trajectory("first", id, "fix-a")
		tr.StopReason = stop
		r.State(events.RolloutFinishedType, id, "0", servicetest.Finished(t, r.Log.Store(), "first", id, tr))
	}
	output, err := clitest.Run(t, New, "run", "show", "first", "--dir", r.Dir)
	if err != nil || !strings.Contains(output, "\nended: context 2, finished 1\n") {
		t.Errorf("run show: %v: %s", err, output)
	}
}

// TestSummariesAreShown: who looks at a run sees how often its rollouts have summed their work up.
func TestSummariesAreShown(t *testing.T) {
	t.Parallel()
	r := clitest.NewRecorded(t)
	for i := range 3 {
		id := events.RolloutID("g000001", i)
		servicetest.StartRollout(t, r.Log, "first", id, "fix-a")
		for turn := range i {
			e := servicetest.Event(t, "first", events.TurnSampledType, id, events.Ordinal(turn),
				events.TurnSampled{Turn: turn, Content: "so far", Summary: &events.Summary{}})
			e.Route = runfile.RouteSummary
			servicetest.Append(t, r.Log, e)
		}
	}
	output, err := clitest.Run(t, New, "run", "show", "first", "--dir", r.Dir)
	if err != nil || !strings.Contains(output, "\nsummaries: 3 in 2 rollouts\n") {
		t.Errorf("run show: %v: %s", err, output)
	}
}
