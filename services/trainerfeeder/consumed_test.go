package trainerfeeder

import (
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
)

// The trainer publishes once for each step, so the version that a batch will meet is
// known when it is composed.
func TestTooOldWhenConsumed(t *testing.T) {
	k := newDesk(t)
	k.group(1, 0, good...)
	k.group(2, 0, good...)
	k.batch()
	k.consumed(1)
	k.group(3, 0, good...)
	k.group(4, 0, good...)
	if b := k.batch(); b.Step != 2 {
		t.Fatalf("batch %+v: it will be one version old, which is allowed", b)
	}
	k.trained(1)
	k.consumed(2)
	k.group(5, 0, good...) // one version old now, and two when it would be consumed: step 2 is trained on first
	k.group(6, 1, good...)
	k.group(7, 1, good...)
	facts := k.Settle()
	if got := decidertest.Names(facts); !slices.Equal(got, []string{"group.dropped g000005", "batch.ready trainer"}) {
		t.Fatalf("got %v", got)
	}
	if d := decidertest.Data[events.GroupDropped](t, facts[0]); d.Reason != events.DropStale || d.Staleness != 2 ||
		!strings.Contains(d.Detail, "1 policy versions old now and 2 when") {
		t.Errorf("dropped %+v", d)
	}
}

// With a bound of 0 a batch is composed when the weights of the one before it are there: trainer
// and rollouts take turns.
func TestNothingAheadOnPolicy(t *testing.T) {
	k := newDesk(t, policy(runfile.StaleDrop, 0))
	for step := range int64(3) {
		first := 10*step + 1
		k.group(first, step, good...)
		k.group(first+1, step, good...)
		if b := k.batch(); b.Step != step+1 || b.Staleness != 0 {
			t.Fatalf("batch %+v, want step %d", b, step+1)
		}
		k.consumed(step + 1)
		late := k.group(first+2, step, good...)
		if got := decidertest.Names(k.Settle()); !slices.Equal(got, []string{"group.dropped " + late}) {
			t.Fatalf("got %v: it would be one version old", got)
		}
		k.trained(step + 1)
	}
}

// A trainer that publishes for several steps at once loses nothing that is
// young enough for all of them.
func TestOneVersionForSeveralSteps(t *testing.T) {
	k := newDesk(t)
	for version := range int64(3) {
		for n := range int64(4) {
			k.group(4*version+n+1, version, good...)
		}
		for n := range int64(2) {
			step := 2*version + n + 1
			if b := k.batch(); b.Step != step {
				t.Fatalf("batch %+v, want step %d", b, step)
			}
			k.consumed(step)
		}
		k.Happen(events.WeightsPublishedType, "policy",
			events.WeightsPublished{Version: version + 1, Run: testRun, ThroughStep: 2*version + 2})
	}
}

// Only the feed that the policy is trained on knows which versions will come.
func TestOtherFeedsCountPublishedVersions(t *testing.T) {
	k := newDesk(t, func(cfg *runfile.RunConfig) { cfg.Feeds[0], cfg.Feeds[1] = cfg.Feeds[1], cfg.Feeds[0] })
	k.d.feed = runfile.Feed{Name: "trainer", GroupsPerBatch: 1}
	for n := range int64(4) {
		k.group(n+1, 0, ending{reward: 1})
		if b := k.batch(); b.Step != n+1 {
			t.Errorf("batch %+v", b)
		}
		k.consumed(n + 1)
	}
}

// Outsiders bring groups to external runs whether or not the trainer publishes.
func TestExternalRunsNeverStarve(t *testing.T) {
	k := newDesk(t, feed(func(f *runfile.Feed) { f.GroupsPerBatch = 1 }),
		func(cfg *runfile.RunConfig) { cfg.External = true })
	next := int64(0)
	take := func(version int64) {
		t.Helper()
		next++
		k.group(next, version, good...)
		k.consumed(k.batch().Step)
	}
	k.version(5) // of another run
	for range 4 {
		take(4) // nothing was published for this run
	}
	k.Happen(events.WeightsPublishedType, "policy", events.WeightsPublished{Version: 6, Run: testRun, ThroughStep: 4})
	take(5)
	k.group(20, 5, good...) // one version old, and one step is not covered
	if got := decidertest.Names(k.Settle()); !slices.Equal(got, []string{"group.dropped g000020"}) {
		t.Errorf("got %v", got)
	}
	for range 4 {
		take(6) // of the current version
	}
}
