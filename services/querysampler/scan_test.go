package querysampler

import (
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
)

// TestDecisionReadsNoRolloutInFlight: a decision comes with each event, so it must not grow with
// the rollouts that are in flight.
func TestDecisionReadsNoRolloutInFlight(t *testing.T) {
	cost := func(groups int) float64 {
		return inFlightLog(t, groups).Cost()
	}
	if few, many := cost(2), cost(200); many > few {
		t.Errorf("%.0f allocations with 4 rollouts in flight, %.0f with 400", few, many)
	}
}

func BenchmarkDecide(b *testing.B) {
	l := inFlightLog(b, 1000)
	b.ReportAllocs()
	for b.Loop() {
		l.Decide()
	}
}

// inFlightLog is the log of a run that has so many groups of two in flight, and opens no more.
func inFlightLog(t testing.TB, groups int) *decidertest.Log {
	l := newLog(t, func(cfg *runfile.RunConfig) { cfg.External = true })
	opened(l)
	for i := range groups {
		id := events.GroupID(int64(i + 1))
		l.Happen(events.GroupOpenedType, id, events.GroupOpened{Task: "task-1", Size: 2})
		for m := range 2 {
			l.Happen(events.RolloutStartedType, events.RolloutID(id, m),
				events.RolloutStarted{Group: id, Member: m, Task: "task-1", Deadline: l.Now.Add(1e9)})
		}
	}
	return l
}
