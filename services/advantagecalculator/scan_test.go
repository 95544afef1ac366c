package advantagecalculator

import (
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
)

// TestDecisionReadsNoOpenGroup: a decision comes with each event, so it must not grow with
// the groups that are open.
func TestDecisionReadsNoOpenGroup(t *testing.T) {
	cost := func(groups int) float64 {
		return withOpen(t, groups).Cost()
	}
	if few, many := cost(2), cost(200); many > few {
		t.Errorf("%.0f allocations with 2 open groups, %.0f with 200", few, many)
	}
}

func BenchmarkDecide(b *testing.B) {
	l := withOpen(b, 1000)
	b.ReportAllocs()
	for b.Loop() {
		l.Decide()
	}
}

// withOpen is a log with so many open groups of two, of which one member has an outcome.
func withOpen(t testing.TB, groups int) *decidertest.Log {
	l := newLog(t, nil)
	for i := range groups {
		id := events.GroupID(int64(i + 1))
		open(l, id, 2)
		scored(l, events.RolloutID(id, 0), 1)
	}
	return l
}
