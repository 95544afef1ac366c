package books

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
)

// Trained are two short rollouts; long ones of the hard task are dropped for age and variance.
func TestBias(t *testing.T) {
	b := varied(t)
	bias := b.Bias("a")
	if bias.Feed != "a" || len(bias.Measures) != 3 {
		t.Fatalf("%+v", bias)
	}
	for i, want := range []struct {
		name             string
		trained, dropped string // rollouts, mean, p10, p50, p90
		superiority      float64
	}{
		// Trained: 100 and 102. Dropped: 101, 103, then 500, 501, 400, 401, 450, 451;
		// the failed ones have none.
		{"sampled tokens", "2 101 100 100 102", "8 363.4 101 401 501", 15. / 16},
		// Trained: 2, 2. Dropped: 2, 2, 8, 8, 6, 6, 7, 7, and 1, 0 and 0 of those that
		// failed or were invalidated.
		{"turns", "2 2 2 2 2", "11 4.3 0 6 8", 14. / 22},
		// hard: 1 − 1/6; easy: 1 − 6/8; failing was never scored.
		{"difficulty", "2 0.2 0.2 0.2 0.2", "8 0.7 0.2 0.8 0.8", 14. / 16},
	} {
		t.Run(want.name, func(t *testing.T) {
			m := bias.Measures[i]
			text := func(d Distribution) string {
				return strings.ReplaceAll(fmt.Sprintf("%d %.1f %.1f %.1f %.1f", d.Rollouts, d.Mean, d.P10,
					d.P50, d.P90), ".0", "")
			}
			if m.Name != want.name || text(m.Trained) != want.trained || text(m.Dropped) != want.dropped {
				t.Errorf("%s: trained %s, dropped %s; want %s: %s and %s", m.Name, text(m.Trained), text(m.Dropped),
					want.name, want.trained, want.dropped)
			}
			if m.Superiority == nil || math.Abs(*m.Superiority-want.superiority) > 1e-9 {
				t.Errorf("%s: superiority %v, want %g", m.Name, m.Superiority, want.superiority)
			}
			var trained, dropped float64
			for k, bin := range m.Plot {
				trained, dropped = trained+bin.Trained, dropped+bin.Dropped
				if k > 0 && bin.From != m.Plot[k-1].To {
					t.Errorf("%s: bin %d does not begin where the last one ends", m.Name, k)
				}
			}
			if math.Abs(trained-1) > 1e-9 || math.Abs(dropped-1) > 1e-9 {
				t.Errorf("%s: the plot shows %g and %g of the rollouts", m.Name, trained, dropped)
			}
		})
	}
	if d := bias.Measures[1].Outcomes; d[Failed].Rollouts != 2 || d[Stale].Mean != 6.5 || d[Filtered].Rollouts != 5 {
		t.Errorf("turns by outcome: %+v", d)
	}
}

func TestBiasOfLittle(t *testing.T) {
	b := newBook(t)
	for _, m := range b.Bias("a").Measures {
		if m.Superiority != nil || m.Trained.Rollouts != 0 || len(m.Plot) != 0 {
			t.Errorf("an empty run has a bias: %+v", m)
		}
	}
	// All alike: one bin, and no bias. Rewards are any numbers that JSON has.
	for i, reward := range []float64{math.MaxFloat64, -math.MaxFloat64} {
		id := events.RolloutID(events.GroupID(int64(i+1)), 0)
		b.start(id, fmt.Sprint(i))
		b.happen(events.RolloutFinishedType, id, events.RolloutFinished{Sampled: 5, Turns: 1})
		b.happen(events.RolloutScoredType, id, events.RolloutScored{Reward: reward})
	}
	b.ready("a", 1, "g000001-0")
	b.happen(events.BatchConsumedType, "a", events.BatchConsumed{Step: 1})
	b.happen(events.GroupDroppedType, "g000002", events.GroupDropped{Feed: "a", Reason: events.DropStale})
	bias := b.Bias("a")
	if m := bias.Measures[0]; len(m.Plot) != 1 || *m.Superiority != 0.5 || m.Plot[0].Trained != 1 ||
		m.Plot[0].Dropped != 1 {
		t.Errorf("equal rollouts: %+v", m)
	}
	if m := bias.Measures[2]; *m.Superiority != 1 {
		t.Errorf("the dropped task is the harder one: %+v", m)
	}
	if _, err := json.Marshal(bias); err != nil {
		t.Error(err)
	}
}
