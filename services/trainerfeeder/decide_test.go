package trainerfeeder

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runtime/decidertest"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/projection"
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

func TestBatchesWholeGroupsOldestFirst(t *testing.T) {
	k := newDesk(t)
	k.group(3, 0, good...) // groups complete in any order, and are taken in that one
	k.nothing("with one group of two")
	k.group(1, 0, good...)
	k.group(2, 0, ending{reward: 1}, ending{failed: true})
	b := k.batch()
	if b.Step != 1 || !slices.Equal(b.Groups, []string{"g000003", "g000001"}) || b.RewardMean != 0.5 || b.Samples != 4 || b.Tokens != 28 || b.File == nil {
		t.Errorf("batch %+v", b)
	}
	if want := []string{"g000003-0", "g000003-1", "g000001-0", "g000001-1"}; !slices.Equal(b.Rollouts, want) {
		t.Errorf("rollouts %v, want %v", b.Rollouts, want)
	}
	k.group(4, 0, good...)
	k.nothing("while a batch is ready that was not taken")
	k.consumed(1)
	b = k.batch()
	if b.Step != 2 || !slices.Equal(b.Groups, []string{"g000002", "g000004"}) || !slices.Equal(b.Rollouts, []string{"g000002-0", "g000004-0", "g000004-1"}) {
		t.Errorf("batch %+v", b)
	}
	// Two scored members of g000004 and one of g000002: (1 + 1 + 0) / 3.
	if b.RewardMean < 0.66 || b.RewardMean > 0.67 {
		t.Errorf("mean reward %g, want 2/3 of the three scored members", b.RewardMean)
	}
}

func TestAtMostOneBatchAhead(t *testing.T) {
	k := newDesk(t)
	for n := range int64(12) {
		k.group(n+1, 0, good...)
	}
	for step := int64(1); step <= 6; step++ {
		if b := k.batch(); b.Step != step {
			t.Fatalf("step %d comes as step %d", step, b.Step)
		}
		if step == 3 {
			k.Happen(events.BatchConsumedType, "other", events.BatchConsumed{Step: 9})
			k.Happen(events.BatchCheckpointedType, "trainer", events.BatchCheckpointed{Step: 3})
			k.consumed(1) // late, and said twice
			k.nothing("another feed's step, a checkpoint and an old step free nothing")
			k.consumed(99) // a step that is not there yet is the last one that is
			continue
		}
		k.consumed(step)
	}
	k.nothing("all groups are batched")
}

func TestStaleGroups(t *testing.T) {
	k := newDesk(t)
	k.group(1, 0, good...)
	k.group(2, 1, good...)
	k.version(1)
	b := k.batch()
	if b.MinVersion != 0 || b.Staleness != 1 || len(b.Groups) != 2 {
		t.Errorf("one version old is allowed: %+v", b)
	}
	k.group(3, 1, good...)
	k.group(4, 2, good...)
	k.group(5, 3, good...)
	k.version(3)
	facts := k.Settle() // stale groups go even while no batch is wanted
	if got := decidertest.Names(facts); !slices.Equal(got, []string{"group.dropped g000003"}) {
		t.Fatalf("got %v", got)
	}
	d := decidertest.Data[events.GroupDropped](t, facts[0])
	if d.Feed != "trainer" || d.Reason != events.DropStale || d.Staleness != 2 || !strings.Contains(d.Detail, "2 policy versions old, at most 1") {
		t.Errorf("dropped %+v", d)
	}
	k.consumed(1)
	if b = k.batch(); !slices.Equal(b.Groups, []string{"g000004", "g000005"}) || b.Staleness != 1 || b.MinVersion != 2 {
		t.Errorf("batch %+v", b)
	}
}

func TestFilteredGroups(t *testing.T) {
	k := newDesk(t)
	k.group(1, 0, ending{reward: 1, textOnly: true}, ending{failed: true})
	k.group(2, 0, ending{reward: 1, invalidated: true}, ending{reward: 1, textOnly: true})
	k.group(3, 0, ending{failed: true}, ending{failed: true})
	k.group(4, 0, ending{reward: 1, textOnly: true}, ending{reward: 0})
	k.group(5, 0, ending{reward: 1, invalidated: true}, ending{reward: 1})
	facts := k.Settle()
	if got := decidertest.Names(facts); !slices.Equal(got, []string{"group.dropped g000001", "group.dropped g000002", "batch.ready trainer"}) {
		t.Fatalf("got %v", got)
	}
	for i, detail := range []string{"no token ids", "invalidated"} {
		d := decidertest.Data[events.GroupDropped](t, facts[i])
		if d.Reason != events.DropFiltered || !strings.Contains(d.Detail, detail) {
			t.Errorf("dropped %+v, want %s", d, detail)
		}
	}
	b := decidertest.Data[events.BatchReady](t, facts[2])
	if !slices.Equal(b.Rollouts, []string{"g000004-1", "g000005-1"}) || b.Samples != 2 {
		t.Errorf("batch %+v", b)
	}
}

// A rollout may be invalidated while its group waits.
func TestInvalidatedWhileWaiting(t *testing.T) {
	k := newDesk(t)
	k.group(1, 0, good...)
	k.Happen(events.RolloutInvalidatedType, "g000001-1", events.RolloutInvalidated{Reason: "x"})
	k.Happen(events.RolloutInvalidatedType, "g000009-1", events.RolloutInvalidated{Reason: "x"})
	k.group(2, 0, good...)
	if b := k.batch(); !slices.Equal(b.Rollouts, []string{"g000001-0", "g000002-0", "g000002-1"}) {
		t.Errorf("rollouts %v", b.Rollouts)
	}
}

func TestRewind(t *testing.T) {
	k := newDesk(t)
	for n := range int64(12) {
		k.group(n+1, 0, good...)
	}
	for step := int64(1); step <= 4; step++ {
		k.batch()
		k.consumed(step)
	}
	k.batch() // step 5 is ready
	k.Happen(events.BatchRewoundType, "trainer", events.BatchRewound{ToStep: 2})
	k.nothing("after a rewind, before the trainer has caught up")
	for step := int64(3); step <= 4; step++ {
		k.consumed(step) // the same steps again: they are on the log already
		k.nothing(fmt.Sprintf("after step %d came again", step))
	}
	k.consumed(5)
	if b := k.batch(); b.Step != 6 || !slices.Equal(b.Groups, []string{"g000011", "g000012"}) {
		t.Errorf("after it caught up: %+v", b)
	}
}

func TestClosed(t *testing.T) {
	k := newDesk(t)
	for n := range int64(5) {
		k.group(n+1, 0, good...)
	}
	k.batch()
	k.Happen(events.RunClosedType, testRun, events.RunClosed{})
	k.consumed(1)
	facts := k.Settle()
	if got := decidertest.Names(facts); !slices.Equal(got, []string{"group.dropped g000003", "group.dropped g000004", "group.dropped g000005"}) {
		t.Fatalf("got %v", got)
	}
	if d := decidertest.Data[events.GroupDropped](t, facts[0]); !strings.Contains(d.Detail, "closed") {
		t.Errorf("dropped %+v", d)
	}
	k.group(6, 0, good...)
	if got := decidertest.Names(k.Settle()); !slices.Equal(got, []string{"group.dropped g000006"}) {
		t.Errorf("a group that completes after the end: %v", got)
	}
}

// Another feed's facts do not move this one.
func TestFeedsAreApart(t *testing.T) {
	k := newDesk(t)
	k.group(1, 0, good...)
	k.Happen(events.GroupDroppedType, "g000001", events.GroupDropped{Feed: "other", Reason: events.DropStale})
	k.Happen(events.BatchReadyType, "other", events.BatchReady{Step: 1, Groups: []string{"g000001"}})
	k.group(2, 0, good...)
	if b := k.batch(); b.Step != 1 || len(b.Groups) != 2 {
		t.Errorf("batch %+v", b)
	}
}

func TestFile(t *testing.T) {
	k := newDesk(t)
	k.group(1, 0, good...)
	k.group(2, 1, good...)
	k.version(1)
	decided := k.Decide()
	fact, err := k.d.Complete(t.Context(), k.View(), decided[0])
	if err != nil {
		t.Fatal(err)
	}
	ready := decidertest.Data[events.BatchReady](t, fact)
	first, err := storage.GetBlob(t.Context(), k.store, *ready.File)
	if err != nil {
		t.Fatal(err)
	}
	if want := "runs/r/batches/trainer/000000000001-"; !strings.HasPrefix(ready.File.Key, want) {
		t.Errorf("the file is called %s, want %s…", ready.File.Key, want)
	}
	// Later, from the same facts in another store: the same bytes under the same name.
	elsewhere := newDesk(t)
	time.Sleep(2 * time.Millisecond)
	elsewhere.group(1, 0, good...)
	elsewhere.group(2, 1, good...)
	elsewhere.version(1)
	again := elsewhere.batch()
	second, err := storage.GetBlob(t.Context(), elsewhere.store, *again.File)
	if err != nil {
		t.Fatal(err)
	}
	if *again.File != *ready.File || string(first) != string(second) {
		t.Errorf("completing the fact again gives another file: %+v, then %+v", *ready.File, *again.File)
	}
	checkBatch(t, first)
}

func checkBatch(t *testing.T, data []byte) {
	t.Helper()
	b, err := storage.DecodeBatch(data)
	if err != nil {
		t.Fatal(err)
	}
	if b.Run != testRun || b.Feed != "trainer" || b.Step != 1 || len(b.Samples) != 4 {
		t.Fatalf("batch of run %s, feed %s, step %d with %d samples", b.Run, b.Feed, b.Step, len(b.Samples))
	}
	for i, s := range b.Samples {
		group, member := events.GroupID(int64(i/2+1)), i%2
		reward := float32(1 - member)
		advantage := reward - 0.5
		if s.Rollout != events.RolloutID(group, member) || s.Group != group || s.Reward != reward || s.Staleness != int32(1-i/2) || s.PromptLength != 3 {
			t.Errorf("sample %d: rollout %s, reward %g, staleness %d, prompt of %d", i, s.Rollout, s.Reward, s.Staleness, s.PromptLength)
		}
		if want := []int32{1, 2, 3, 4, 5, 6, 7}; !slices.Equal(s.Tokens, want) {
			t.Errorf("sample %d: tokens %v", i, s.Tokens)
		}
		// What the model did not sample has no advantage.
		if want := []float32{0, 0, 0, advantage, advantage, 0, advantage}; !slices.Equal(s.Advantages, want) {
			t.Errorf("sample %d: advantages %v, want %v", i, s.Advantages, want)
		}
	}
}

func TestMissingTrajectory(t *testing.T) {
	k := newDesk(t)
	k.group(1, 0, good...)
	k.group(2, 0, good...)
	fact := k.Decide()[0]
	for info, err := range k.store.List(t.Context(), "blobs/") {
		if err != nil {
			t.Fatal(err)
		}
		if err := k.store.Delete(t.Context(), info.Key); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := k.d.Complete(t.Context(), k.View(), fact); err == nil || !strings.Contains(err.Error(), "batch 1 of feed trainer: trajectory of g000001-0") {
		t.Errorf("a batch without its trajectories: %v", err)
	}
}

func TestStateShrinks(t *testing.T) {
	k := newDesk(t)
	k.version(5)
	for n := range int64(40) {
		switch n % 4 {
		case 0:
			k.group(n+1, 0, good...) // stale
		case 1:
			k.group(n+1, 5, ending{failed: true}, ending{failed: true})
		default:
			k.group(n+1, 5, good...)
		}
		k.Happen(events.RolloutInvalidatedType, events.RolloutID(events.GroupID(n+1), 0), events.RolloutInvalidated{Reason: "late"})
		k.Settle()
		k.consumed(99)
		k.Settle()
	}
	for _, prefix := range []string{episodes, waiting, placeOf} {
		n := 0
		for _, err := range projection.Scan[any](k.View(), prefix) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != 0 {
			t.Errorf("%d entries of %s are left", n, prefix)
		}
	}
}
