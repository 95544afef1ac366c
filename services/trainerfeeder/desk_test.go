package trainerfeeder

import (
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runtime/decidertest"
	"github.com/rondo-rl/rondo/storage"
)

const testRun = "r"

// desk is a feeder's log and store. Batches have two groups, groups two members.
type desk struct {
	*decidertest.Log
	t     *testing.T
	store storage.Store
	d     *Decider
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	cfg := events.DefaultRunConfig()
	cfg.Staleness.Max = 1
	cfg.Feeds = []events.Feed{{Name: "trainer", GroupsPerBatch: 2}, {Name: "other", GroupsPerBatch: 1}}
	store := natstest.Store(t)
	d := NewDecider(testRun, cfg, cfg.Feeds[0], store)
	return &desk{Log: decidertest.New(t, testRun, d), t: t, store: store, d: d}
}

// member is how a rollout ended, and what happened to it.
type ending struct {
	reward      float64
	failed      bool
	textOnly    bool
	invalidated bool
}

// group lets a group run from its start at a version to its completion.
func (k *desk) group(n, version int64, endings ...ending) string {
	k.t.Helper()
	id := events.GroupID(n)
	completed := events.GroupCompleted{Task: "task"}
	var sum, scored float64
	for i, e := range endings {
		rollout := events.RolloutID(id, i)
		k.Happen(events.RolloutStartedType, rollout, events.RolloutStarted{Group: id, Member: i, PolicyVersion: version})
		m := events.Member{Rollout: rollout, Failed: e.failed}
		if e.failed {
			k.Happen(events.RolloutFailedType, rollout, events.RolloutFailed{})
		} else {
			k.Happen(events.RolloutScoredType, rollout, events.RolloutScored{Reward: e.reward, TextOnly: e.textOnly, Trajectory: k.trajectory(id, rollout, version, e.textOnly)})
			m.Reward, m.Advantage = e.reward, e.reward-0.5
			sum, scored = sum+e.reward, scored+1
		}
		completed.Members = append(completed.Members, m)
	}
	if scored > 0 {
		completed.Mean = sum / scored
	}
	for i, e := range endings {
		if e.invalidated {
			k.Happen(events.RolloutInvalidatedType, events.RolloutID(id, i), events.RolloutInvalidated{Reason: "x"})
		}
	}
	k.Happen(events.GroupCompletedType, id, completed)
	return id
}

// trajectory stores a small trajectory: a prompt of three tokens, two sampled, a tool's answer, one sampled.
func (k *desk) trajectory(group, rollout string, version int64, textOnly bool) storage.Ref {
	k.t.Helper()
	tr := &storage.Trajectory{Run: testRun, Group: group, Rollout: rollout, Task: "task", StopReason: "finished", DispatchVersion: version, TextOnly: textOnly}
	for i, m := range []storage.Message{
		{Role: "user", TokenIDs: []int32{1, 2, 3}, PolicyVersion: -1},
		{Role: "assistant", TokenIDs: []int32{4, 5}, LossMask: []bool{true, true}, Logprobs: []float32{-0.1, -0.2}, PolicyVersion: version},
		{Role: "tool", TokenIDs: []int32{6}, PolicyVersion: -1},
		{Role: "assistant", TokenIDs: []int32{7}, LossMask: []bool{true}, Logprobs: []float32{-0.3}, PolicyVersion: version + 1},
	} {
		m.Index = int32(i)
		if m.LossMask == nil {
			m.LossMask, m.Logprobs = make([]bool, len(m.TokenIDs)), make([]float32, len(m.TokenIDs))
		}
		if textOnly {
			m.TokenIDs, m.LossMask, m.Logprobs = nil, nil, nil
		}
		tr.Messages = append(tr.Messages, m)
	}
	data, err := storage.EncodeTrajectory(tr)
	if err != nil {
		k.t.Fatal(err)
	}
	ref, err := storage.PutBlob(k.t.Context(), k.store, data)
	if err != nil {
		k.t.Fatal(err)
	}
	return ref
}

func (k *desk) version(n int64) {
	k.Happen(events.WeightsPublishedType, "policy", events.WeightsPublished{Version: n, Run: testRun})
}

func (k *desk) consumed(step int64) {
	k.Happen(events.BatchConsumedType, "trainer", events.BatchConsumed{Step: step})
}

// batch settles, and reads the one batch that comes of it.
func (k *desk) batch() events.BatchReady {
	k.t.Helper()
	facts := k.Settle()
	if len(facts) != 1 || facts[0].Type != events.BatchReadyType || facts[0].Entity != "trainer" {
		k.t.Fatalf("got %v, want one batch", decidertest.Names(facts))
	}
	return decidertest.Data[events.BatchReady](k.t, facts[0])
}

func (k *desk) nothing(why string) {
	k.t.Helper()
	if facts := k.Settle(); len(facts) != 0 {
		k.t.Errorf("%s: %v", why, decidertest.Names(facts))
	}
}

var good = []ending{{reward: 1}, {reward: 0}}
