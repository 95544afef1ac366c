package trainerfeeder

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
	"github.com/rondo-rl/rondo/storage/projection"
)

func TestBatchesWholeGroupsOldestFirst(t *testing.T) {
	k := newDesk(t)
	k.group(3, 0, good...) // groups complete in any order, and are taken in that one
	k.nothing("with one group of two")
	k.group(1, 0, good...)
	k.group(2, 0, ending{reward: 1}, ending{failed: true})
	b := k.batch()
	if b.Step != 1 || !slices.Equal(b.Groups, []string{"g000003", "g000001"}) || b.RewardMean != 0.5 ||
		b.Samples != 4 || b.Tokens != 28 || len(b.Files) != 1 {
		t.Errorf("batch %+v", b)
	}
	if want := []string{"g000003-0", "g000003-1", "g000001-0", "g000001-1"}; !slices.Equal(b.Rollouts, want) {
		t.Errorf("rollouts %v, want %v", b.Rollouts, want)
	}
	k.group(4, 0, good...)
	k.nothing("while a batch is ready that was not taken")
	k.consumed(1)
	b = k.batch()
	if b.Step != 2 || !slices.Equal(b.Groups, []string{"g000002", "g000004"}) ||
		!slices.Equal(b.Rollouts, []string{"g000002-0", "g000004-0", "g000004-1"}) {
		t.Errorf("batch %+v", b)
	}
	// Two scored members of g000004 and one of g000002: (1 + 1 + 0) / 3.
	if b.RewardMean < 0.66 || b.RewardMean > 0.67 {
		t.Errorf("mean reward %g, want 2/3 of the three scored members", b.RewardMean)
	}
}

func TestAtMostOneBatchAhead(t *testing.T) {
	k := newDesk(t, policy(runfile.StaleDrop, 9))
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
	k.Happen(events.WeightsPublishedType, "policy", events.WeightsPublished{Version: 3, Run: testRun, ThroughStep: 1})
	facts := k.Settle() // stale groups go even while no batch is wanted
	if got := decidertest.Names(facts); !slices.Equal(got, []string{"group.dropped g000003"}) {
		t.Fatalf("got %v", got)
	}
	d := decidertest.Data[events.GroupDropped](t, facts[0])
	if d.Feed != "trainer" || d.Reason != events.DropStale || d.Staleness != 2 ||
		!strings.Contains(d.Detail, "2 policy versions old, at most 1") {
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
	if got := decidertest.Names(facts); !slices.Equal(got,
		[]string{"group.dropped g000001", "group.dropped g000002", "batch.ready trainer"}) {
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

// A group none of whose prompts fitted says so.
func TestMisfitGroups(t *testing.T) {
	k := newDesk(t)
	k.group(1, 0, ending{textOnly: true, stop: events.StopContext}, ending{textOnly: true, stop: events.StopContext})
	facts := k.Settle()
	if len(facts) != 1 || !strings.Contains(decidertest.Data[events.GroupDropped](t, facts[0]).Detail,
		"does not fit into the inference server's context") {
		t.Errorf("facts %v", facts)
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
	k := newDesk(t, policy(runfile.StaleDrop, 9))
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
	if got := decidertest.Names(facts); !slices.Equal(got,
		[]string{"group.dropped g000003", "group.dropped g000004", "group.dropped g000005"}) {
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

func TestStateShrinks(t *testing.T) {
	for name, policy := range map[string]string{"drop": runfile.StaleDrop, "wait": runfile.StaleWait} {
		t.Run(name, func(t *testing.T) {
			k := newDesk(t, func(cfg *runfile.RunConfig) { cfg.Staleness.Policy = policy })
			stateShrinks(t, k)
		})
	}
}

func stateShrinks(t *testing.T, k *desk) {
	k.version(5)
	for n := range int64(16) {
		k.Happen(events.RolloutAnnotatedType, events.RolloutID(events.GroupID(n+1), 0),
			events.RolloutAnnotated{Text: "too early"})
		switch n % 4 {
		case 0:
			k.group(n+1, 0, good...) // stale
		case 1:
			k.open(n+1, 5, 2)
			k.Happen(events.RolloutAnnotatedType, events.RolloutID(events.GroupID(n+1), 1),
				events.RolloutAnnotated{Text: "in time"})
			k.end(n+1, 5, ending{failed: true}, ending{failed: true})
		default:
			k.group(n+1, 5, good...)
			k.Happen(events.RolloutAnnotatedType, events.RolloutID(events.GroupID(n+1), 1),
				events.RolloutAnnotated{Text: "in time"})
		}
		k.Happen(events.RolloutAnnotatedType, events.RolloutID(events.GroupID(n+1), 7),
			events.RolloutAnnotated{Text: "of nobody"})
		k.Happen(events.RolloutInvalidatedType, events.RolloutID(events.GroupID(n+1), 0),
			events.RolloutInvalidated{Reason: "late"})
		k.Settle()
		k.consumed(99)
		k.Settle()
	}
	for _, prefix := range []string{episodes, waiting, placeOf, flights, remarked} {
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
