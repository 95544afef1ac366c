package trainerfeeder

import (
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
	"github.com/rondo-rl/rondo/storage"
)

// spanned lets a group run whose members sampled two tokens each, with the versions of each.
func (k *desk) spanned(n, dispatched int64, versions ...[2]int64) {
	k.t.Helper()
	id := events.GroupID(n)
	k.open(n, dispatched, len(versions))
	completed := events.GroupCompleted{Task: "task", Mean: 0.5}
	for i, v := range versions {
		rollout, reward := events.RolloutID(id, i), float64(i%2)
		turn := events.TurnSampled{TokenIDs: []int32{4, 5}, Logprobs: []float32{-1, -2}}
		turn.SetVersions([]events.VersionSpan{{Version: v[0], Start: 0, End: 1}, {Version: v[1], Start: 1, End: 2}})
		row, err := turn.Row(0)
		if err != nil {
			k.t.Fatal(err)
		}
		row.Index = 1
		tr := &storage.Trajectory{Run: testRun, Group: id, Rollout: rollout, Task: "task",
			StopReason: events.StopFinished, DispatchVersion: dispatched,
			Messages: []storage.Message{{Role: "user", TokenIDs: []int32{1}, Logprobs: []float32{0},
				LossMask: []bool{false}, PolicyVersion: -1}, row}}
		data, err := storage.EncodeTrajectory(tr)
		if err != nil {
			k.t.Fatal(err)
		}
		finished := events.NewRolloutFinished(tr)
		if finished.Trajectory, err = storage.PutBlob(k.t.Context(), k.store, data); err != nil {
			k.t.Fatal(err)
		}
		k.Happen(events.RolloutFinishedType, rollout, finished)
		k.Happen(events.RolloutScoredType, rollout, events.RolloutScored{Reward: reward,
			Trajectory: finished.Trajectory})
		completed.Members = append(completed.Members, events.Member{Rollout: rollout, Reward: reward, Shaped: reward,
			Advantage: reward - 0.5})
	}
	k.Happen(events.GroupCompletedType, id, completed)
}

func require(cfg *runfile.RunConfig) { cfg.Staleness.RequireVersions = true }

func single(cfg *runfile.RunConfig) { cfg.Feeds[0].GroupsPerBatch = 1 }

// TestVersionsInBatches: a batch says of each token which version sampled it, also where that
// changed within a turn, and flags those that are too old.
func TestVersionsInBatches(t *testing.T) {
	k := newDesk(t, single, policy(runfile.StaleKeep, 1))
	k.version(3)
	k.spanned(1, 2, [2]int64{1, 3}, [2]int64{2, 2}, [2]int64{-1, 3})
	samples := k.files(k.batch())[0].Samples
	for i, want := range [][]storage.VersionSegment{
		{{Start: 1, Length: 1, Version: 1, Stale: true}, {Start: 2, Length: 1, Version: 3}},
		{{Start: 1, Length: 2, Version: 2}},
		{{Start: 1, Length: 1, Version: -1}, {Start: 2, Length: 1, Version: 3}},
	} {
		if !slices.Equal(samples[i].PolicyVersions, want) {
			t.Errorf("%s: versions %+v, want %+v", samples[i].Rollout, samples[i].PolicyVersions, want)
		}
	}
}

// TestRequiredVersions: a feed that requires versions masks rollouts with tokens of an unknown
// one, says so where no other is left, and counts the age of a group from its oldest token.
// Others take them as they are.
func TestRequiredVersions(t *testing.T) {
	t.Run("masked", func(t *testing.T) {
		k := newDesk(t, single, require)
		k.spanned(1, 0, [2]int64{0, 0}, [2]int64{0, -1}, [2]int64{-1, 0}, [2]int64{0, 0})
		b := k.batch()
		if want := map[string]string{"g000001-1": "unknown version",
			"g000001-2": "unknown version"}; len(b.Masked) != 2 || b.Masked["g000001-1"] != want["g000001-1"] ||
			b.Masked["g000001-2"] != want["g000001-2"] {
			t.Errorf("masked %v, want %v", b.Masked, want)
		}
		if !slices.Equal(b.Rollouts, []string{"g000001-0", "g000001-3"}) {
			t.Errorf("trained on %v", b.Rollouts)
		}
	})
	for name, c := range map[string]struct {
		change   func(*runfile.RunConfig)
		versions [2]int64
		reason   string // of the drop; "" is batched
		detail   string
	}{
		"all unknown":                    {require, [2]int64{-1, 2}, events.DropFiltered, "unknown version"},
		"all unknown, and none required": {func(*runfile.RunConfig) {}, [2]int64{-1, 2}, "", ""},
		"old tokens":                     {require, [2]int64{0, 2}, events.DropStale, "2 policy versions old"},
		"old tokens, and none required":  {func(*runfile.RunConfig) {}, [2]int64{0, 2}, "", ""},
		"tokens as old as may be":        {require, [2]int64{1, 2}, "", ""},
		"another feed's bound is the run's": {func(c *runfile.RunConfig) {
			require(
				c)
			c.Feeds[0].Staleness = &runfile.Staleness{Max: 1}
		}, [2]int64{0, 2}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			k := newDesk(t, single, c.change)
			k.version(2)
			k.spanned(1, 2, c.versions, c.versions)
			facts := k.Settle()
			if len(facts) != 1 || (facts[0].Type == events.BatchReadyType) != (c.reason == "") {
				t.Fatalf("decided %v", decidertest.Names(facts))
			}
			if c.reason == "" {
				return
			}
			if dropped := decidertest.Data[events.GroupDropped](t, facts[0]); dropped.Reason != c.reason ||
				!strings.Contains(dropped.Detail, c.detail) {
				t.Errorf("dropped %+v", dropped)
			}
		})
	}
}
