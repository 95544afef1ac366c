package trainerfeeder

import (
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

func policy(policy string, most int64) func(*runfile.RunConfig) {
	return func(cfg *runfile.RunConfig) { cfg.Staleness = runfile.Staleness{Max: most, Policy: policy} }
}

func TestKeepFlagsWhatIsStale(t *testing.T) {
	k := newDesk(t, policy(runfile.StaleKeep, 1))
	k.group(1, 0, good...)
	k.group(2, 4, good...)
	k.version(3) // while they wait
	b := k.batch()
	if b.Staleness != 3 || b.MinVersion != 0 || !slices.Equal(b.Groups, []string{"g000001", "g000002"}) {
		t.Errorf("batch %+v", b)
	}
	// The second part of each rollout was sampled by the version after its first.
	for _, s := range k.files(b)[0].Samples {
		version := int64(0)
		if s.Group == "g000002" {
			version = 4
		}
		want := []storage.VersionSegment{{Start: 3, Length: 2, Version: version, Stale: version == 0},
			{Start: 6, Length: 1, Version: version + 1, Stale: version == 0}}
		if !slices.Equal(s.PolicyVersions, want) || s.DispatchVersion != version || s.Staleness != int32(3-version) {
			t.Errorf("%s: staleness %d, versions %v, want %v", s.Rollout, s.Staleness, s.PolicyVersions, want)
		}
	}
}

// A rollout that was dispatched too long ago, but finished by newer weights, is stale
// in its first part alone.
func TestStaleSegments(t *testing.T) {
	k := newDesk(t, policy(runfile.StaleKeep, 1), feed(func(f *runfile.Feed) { f.GroupsPerBatch = 1 }))
	k.version(2)
	k.group(1, 0, ending{reward: 1})
	want := []storage.VersionSegment{{Start: 3, Length: 2, Version: 0, Stale: true}, {Start: 6, Length: 1, Version: 1}}
	if s := k.files(k.batch())[0].Samples[0]; !slices.Equal(s.PolicyVersions, want) {
		t.Errorf("versions %v, want %v", s.PolicyVersions, want)
	}
}

// trained publishes weights that were trained on a step.
func (k *desk) trained(step int64) {
	k.Happen(events.WeightsPublishedType, "policy", events.WeightsPublished{Version: step, Run: testRun,
		ThroughStep: step})
}

func TestWaitLetsNothingGrowTooOld(t *testing.T) {
	k := newDesk(t, policy(runfile.StaleWait, 1))
	for n := range int64(4) {
		k.open(n+1, 0, 2) // as many as the sampler opens for staleness 1
	}
	k.end(3, 0, good...)
	k.end(2, 0, good...)
	if b := k.batch(); !slices.Equal(b.Groups, []string{"g000003", "g000002"}) {
		t.Errorf("batch %+v: groups 1 and 4 will be one version old, which is allowed", b)
	}
	k.consumed(1)
	k.trained(1)
	k.open(5, 1, 2)
	k.open(6, 1, 2)
	k.end(5, 1, good...)
	k.end(6, 1, good...)
	k.nothing("groups 1 and 4 would be two versions old after this batch")
	k.end(4, 0, good...)
	k.nothing("group 1 would be two versions old after this batch")
	k.end(1, 0, ending{reward: 1}, ending{failed: true})
	if b := k.batch(); b.Staleness != 1 || !slices.Equal(b.Groups, []string{"g000004", "g000001"}) {
		t.Errorf("batch %+v: the oldest are first, although they ended last", b)
	}
}

// A batch that is ready while the weights of the one before it are under way is two versions ahead.
func TestWaitCountsTheVersionsUnderWay(t *testing.T) {
	k := newDesk(t, policy(runfile.StaleWait, 1))
	for n := range int64(5) {
		k.open(n+1, 0, 2)
	}
	k.end(1, 0, good...)
	k.end(2, 0, good...)
	k.batch()
	k.consumed(1)
	k.end(3, 0, good...)
	k.end(4, 0, good...)
	k.nothing("group 5 would be two versions old after steps 1 and 2")
	k.trained(1)
	k.nothing("group 5 would be two versions old after step 2")
	k.end(5, 0, ending{failed: true}, ending{failed: true})
	k.batch()
}

// What is too old all the same is trained on and flagged: waiting drops nothing.
func TestWaitDropsNothing(t *testing.T) {
	k := newDesk(t, policy(runfile.StaleWait, 0))
	k.group(1, 0, good...)
	k.version(7)
	k.group(2, 6, good...)
	b := k.batch()
	if b.Staleness != 7 || !k.files(b)[0].Samples[0].PolicyVersions[0].Stale {
		t.Errorf("batch %+v", b)
	}
}

// Whom a batch waits for is bounded: rollouts end by their deadlines, and what is
// opened later does not count.
func TestWaitEnds(t *testing.T) {
	for name, end := range map[string]func(k *desk){
		"the rollouts fail at their deadline": func(k *desk) {
			for i := range 2 {
				k.Happen(events.RolloutFailedType, events.RolloutID("g000001", i),
					events.RolloutFailed{Stage: events.StageSampler, Class: events.ClassDeadline})
			}
			k.nothing("all members have ended, but the group is not complete")
			k.Happen(events.GroupCompletedType, "g000001",
				events.GroupCompleted{Members: []events.Member{{Rollout: "g000001-0", Failed: true},
					{Rollout: "g000001-1", Failed: true}}})
		},
		"an outsider never starts the rest of its group": func(k *desk) {
			k.Happen(events.RolloutFailedType, "g000001-0", events.RolloutFailed{Class: events.ClassDeadline})
			k.Happen(events.RolloutFailedType, "g000001-1", events.RolloutFailed{Class: events.ClassDeadline})
			k.Happen(events.GroupCompletedType, "g000001",
				events.GroupCompleted{Members: []events.Member{{Rollout: "g000001-0", Failed: true},
					{Rollout: "g000001-1", Failed: true}}})
			k.Happen(events.GroupOpenedType, "xlazy", events.GroupOpened{Size: 2})
			k.Happen(events.RolloutStartedType, "xlazy-0", events.RolloutStarted{Group: "xlazy"})
			k.Happen(events.RolloutFailedType, "xlazy-0", events.RolloutFailed{Class: events.ClassDeadline})
		},
		"the run is paused meanwhile": func(k *desk) {
			k.Happen(events.RunPausedType, testRun, events.RunPaused{})
			k.end(1, 0, good...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newDesk(t, policy(runfile.StaleWait, 0))
			k.open(1, 0, 2)
			k.open(2, 0, 2)
			k.open(3, 0, 2)
			k.end(2, 0, good...)
			k.end(3, 0, good...)
			k.nothing("group 1 would be too old after the next version")
			k.open(4, 0, 2) // after the batch was complete
			end(k)
			k.batch()
		})
	}
	t.Run("the run is closed", func(t *testing.T) {
		k := newDesk(t, policy(runfile.StaleWait, 0))
		k.open(1, 0, 2)
		k.group(2, 0, good...)
		k.group(3, 0, good...)
		k.nothing("group 1 would be too old")
		k.Happen(events.RunClosedType, testRun, events.RunClosed{})
		if facts := k.Settle(); len(facts) != 2 {
			t.Errorf("%d facts, want the two waiting groups dropped", len(facts))
		}
	})
}

// Versions of a feed that does not train the policy come from elsewhere, whatever it has ready.
func TestWaitOfAnotherFeed(t *testing.T) {
	k := newDesk(t, policy(runfile.StaleWait, 1), func(cfg *runfile.RunConfig) {
		cfg.Feeds[0],
			cfg.Feeds[1] = cfg.Feeds[1], cfg.Feeds[0]
	})
	k.d.feed.Name, k.d.feed.GroupsPerBatch = "trainer", 1
	for n := range int64(3) {
		k.open(n+1, 0, 1)
	}
	for n := range int64(2) {
		k.end(n+1, 0, ending{reward: 1})
		if b := k.batch(); b.Step != n+1 {
			t.Errorf("batch %+v", b)
		}
		k.consumed(n + 1)
	}
}

// TestStaleTokensOfUnknownVersion: what nobody reported is as old as its rollout's start, in flags,
// and stays marked as unknown.
func TestStaleTokensOfUnknownVersion(t *testing.T) {
	for _, c := range []struct {
		segment                    storage.VersionSegment
		version, dispatched, bound int64
		want                       bool
	}{
		{storage.VersionSegment{Version: -1}, 5, 4, 1, false},
		{storage.VersionSegment{Version: -1}, 6, 4, 1, true},
		{storage.VersionSegment{Version: 5}, 6, 4, 1, false},
		{storage.VersionSegment{Version: 0}, 1, 0, 0, true},
	} {
		if got := c.segment.StaleAt(c.version, c.dispatched, c.bound); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}
