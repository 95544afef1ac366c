package trainerfeeder

import (
	"maps"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
)

func export(least float64) func(*runfile.RunConfig) {
	return feed(func(f *runfile.Feed) { f.MinReward = &least })
}

func TestExport(t *testing.T) {
	k := newDesk(t, export(1), func(cfg *runfile.RunConfig) {
		cfg.Filters = runfile.Filters{ZeroVariance: true, MinSurvivors: 2, Truncated: true}
		cfg.Advantage = runfile.Advantage{Estimator: "reinforce_plus_plus", SpanWeight: 3}
	})
	k.version(9)
	k.open(1, 0, 3)
	k.annotate("g000001-0", events.RolloutAnnotated{Turn: number(0), Reward: number(1.)})
	k.end(1, 0, ending{reward: 1}, ending{reward: 0.9}, ending{reward: 1, stop: events.StopLength}) // old
	k.group(2, 9, ending{reward: 1}, ending{reward: 1})                                             // all equal
	b := k.batch()
	if !slices.Equal(b.Rollouts, []string{"g000001-0", "g000002-0", "g000002-1"}) ||
		!maps.Equal(b.Masked, map[string]string{"g000001-1": "min_reward", "g000001-2": "truncated"}) {
		t.Errorf("rollouts %v, masked %v", b.Rollouts, b.Masked)
	}
	for _, s := range k.files(b)[0].Samples {
		if !slices.Equal(s.Advantages, []float32{0, 0, 0, 1, 1, 0, 1}) {
			t.Errorf("%s: advantages %v", s.Rollout, s.Advantages)
		}
		if stale := s.Group == "g000001"; s.PolicyVersions[0].Stale != stale {
			t.Errorf("%s: stale %v", s.Rollout, s.PolicyVersions[0].Stale)
		}
	}
	k.group(3, 9, ending{reward: 0.5}, ending{reward: 0})
	facts := k.Settle()
	if got := decidertest.Names(facts); !slices.Equal(got, []string{"group.dropped g000003"}) {
		t.Fatalf("nobody reaches the threshold: %v", got)
	}
	if d := decidertest.Data[events.GroupDropped](t, facts[0]); d.Filter != "untrainable" ||
		d.Reason != events.DropFiltered {
		t.Errorf("dropped %+v", d)
	}
}

// Nobody needs to take an export's batches, and what is left when the run is
// closed is a smaller one.
func TestExportLosesNothing(t *testing.T) {
	k := newDesk(t, export(0))
	for n := range int64(7) {
		k.group(n+1, 0, good...)
		k.version(n)
	}
	if got := decidertest.Names(k.Settle()); len(got) != 3 {
		t.Errorf("nobody consumes: %v", got)
	}
	k.Happen(events.RunClosedType, testRun, events.RunClosed{})
	if b := k.batch(); b.Step != 4 || !slices.Equal(b.Groups, []string{"g000007"}) {
		t.Errorf("batch %+v", b)
	}
	k.group(8, 0, good...)
	if b := k.batch(); b.Step != 5 {
		t.Errorf("what was in flight: %+v", b)
	}
}

// An export's own settings hold.
func TestStrictExport(t *testing.T) {
	k := newDesk(t, export(0), feed(func(f *runfile.Feed) {
		f.Staleness, f.Filters = &runfile.Staleness{Max: 0}, &runfile.Filters{ZeroVariance: true}
	}))
	k.group(1, 0, good...)
	k.version(1)
	k.group(2, 1, ending{reward: 1}, ending{reward: 1})
	facts := k.Settle()
	var reasons []string
	for _, f := range facts {
		reasons = append(reasons, decidertest.Data[events.GroupDropped](t, f).Reason)
	}
	if !slices.Equal(reasons, []string{events.DropStale, events.DropFiltered}) {
		t.Errorf("%v for %v", decidertest.Names(facts), reasons)
	}
}
