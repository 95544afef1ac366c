package books

import (
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
)

// entity starts one rollout of a task in a group of its own name.
func (b *book) start(id, task string) {
	b.happen(events.RolloutStartedType, id, events.RolloutStarted{Group: events.GroupOf(id),
		Task: task, PolicyVersion: 3})
}

// varied is a book with a rollout in every place that there is, for feed a.
func varied(t *testing.T) *book {
	b := newBook(t)
	sampled := func(id string) { b.happen(events.TurnSampledType, id, events.TurnSampled{}) }
	finished := func(id string, sampled, turns int) {
		b.happen(events.RolloutFinishedType, id, events.RolloutFinished{Sampled: sampled, Tokens: 2 * sampled,
			Turns: turns, StopReason: events.StopFinished})
	}
	scored := func(id string, reward float64) {
		b.happen(events.RolloutScoredType, id, events.RolloutScored{Reward: reward, TaskDigest: "sha256:x"})
	}
	completed := func(group string, members ...events.Member) {
		b.happen(events.GroupCompletedType, group, events.GroupCompleted{Members: members})
	}
	for _, id := range []string{"g000001-0", "g000001-1", "g000001-2", "g000001-3"} {
		b.start(id, "open")
	}
	sampled("g000001-1") // its tools run
	sampled("g000001-2")
	b.happen(events.ToolsCompletedType, "g000001-2", events.ToolsCompleted{})
	sampled("g000001-2")
	finished("g000001-2", 10, 2) // is being scored
	finished("g000001-3", 10, 2)
	scored("g000001-3", 1) // waits for its group

	b.start("g000002-0", "failing")
	sampled("g000002-0")
	b.happen(events.RolloutFailedType, "g000002-0", events.RolloutFailed{Stage: events.StageTools,
		Class: events.ClassSandbox})
	b.start("g000002-1", "failing")
	b.happen(events.RolloutFailedType, "g000002-1", events.RolloutFailed{Stage: events.StageSampler,
		Class: events.ClassDeadline})
	b.start("g000002-2", "failing")
	b.happen(events.RolloutInvalidatedType, "g000002-2", events.RolloutInvalidated{Reason: "x"})
	completed("g000002", events.Member{Rollout: "g000002-0", Failed: true},
		events.Member{Rollout: "g000002-1", Failed: true}, events.Member{Rollout: "g000002-2", Failed: true})

	whole := func(n int64, task string, sampled, turns int, rewards ...float64) {
		var members []events.Member
		for i, r := range rewards {
			id := events.RolloutID(events.GroupID(n), i)
			b.start(id, task)
			finished(id, sampled+i, turns)
			scored(id, r)
			members = append(members, events.Member{Rollout: id, Reward: r})
		}
		completed(events.GroupID(n), members...)
	}
	whole(3, "easy", 100, 2, 1, 1, 0, 1) // batched, two of them masked
	whole(4, "hard", 500, 8, 0, 0)       // filtered
	whole(5, "hard", 400, 6, 1, 0)       // too old
	whole(6, "easy", 110, 3, 1, 0)       // waits for a batch
	whole(7, "easy", 120, 2, 1, 1)       // batched, not taken
	whole(8, "hard", 450, 7, 0, 0)       // left over when the run was closed
	b.happen(events.BatchReadyType, "a", events.BatchReady{
		Step: 1, Groups: []string{"g000003"}, Rollouts: []string{"g000003-0", "g000003-2"},
		Masked: map[string]string{"g000003-1": "truncated"}, // of g000003-3 it says nothing
	})
	b.happen(events.BatchConsumedType, "a", events.BatchConsumed{Step: 1})
	b.ready("a", 2, "g000007-0", "g000007-1")
	b.happen(events.GroupDroppedType, "g000004", events.GroupDropped{Feed: "a", Reason: events.DropFiltered,
		Filter: "zero_variance"})
	b.happen(events.GroupDroppedType, "g000005", events.GroupDropped{Feed: "a", Reason: events.DropStale, Staleness: 2})
	b.happen(events.GroupDroppedType, "g000008", events.GroupDropped{Feed: "a", Reason: events.DropStale,
		Filter: "closed"})
	// An outsider's group is in the books like any other.
	b.start("xmine-0", "easy")
	finished("xmine-0", 90, 1)
	return b
}

func TestBooks(t *testing.T) {
	b := varied(t)
	for by, want := range map[string][]Row{
		ByTask: {
			{Key: "easy", Counts: Counts{Started: 9, Trained: 2, Filtered: 2, InFlight: 5}},
			{Key: "failing", Counts: Counts{Started: 3, Filtered: 1, Failed: 2}},
			{Key: "hard", Counts: Counts{Started: 6, Stale: 4, Filtered: 2}},
			{Key: "open", Counts: Counts{Started: 4, InFlight: 4}},
		},
		ByReason: {
			{Key: "failed: deadline", Counts: Counts{Started: 1, Failed: 1}},
			{Key: "failed: sandbox", Counts: Counts{Started: 1, Failed: 1}},
			{Key: "filtered: invalidated", Counts: Counts{Started: 1, Filtered: 1}},
			{Key: "filtered: not in the batch", Counts: Counts{Started: 1, Filtered: 1}},
			{Key: "filtered: truncated", Counts: Counts{Started: 1, Filtered: 1}},
			{Key: "filtered: zero_variance", Counts: Counts{Started: 2, Filtered: 2}},
			{Key: "in_flight", Counts: Counts{Started: 9, InFlight: 9}},
			{Key: "stale", Counts: Counts{Started: 2, Stale: 2}},
			{Key: "stale: closed", Counts: Counts{Started: 2, Stale: 2}},
			{Key: "trained", Counts: Counts{Started: 2, Trained: 2}},
		},
		ByStage: {
			{Key: "feed", Counts: Counts{Started: 10, Stale: 4, Filtered: 4, InFlight: 2}},
			{Key: "generator", Counts: Counts{Started: 1, InFlight: 1}},
			{Key: "group", Counts: Counts{Started: 2, Filtered: 1, InFlight: 1}},
			{Key: "sampler", Counts: Counts{Started: 1, Failed: 1}},
			{Key: "scorer", Counts: Counts{Started: 2, InFlight: 2}},
			{Key: "tools", Counts: Counts{Started: 2, Failed: 1, InFlight: 1}},
			{Key: "trainer", Counts: Counts{Started: 4, Trained: 2, InFlight: 2}},
		},
	} {
		t.Run(by, func(t *testing.T) {
			parts, err := b.Divide("a", by)
			if err != nil || parts.Feed != "a" || parts.By != by || !slices.Equal(parts.Rows, want) {
				t.Errorf("by %s: %v\ngot  %+v\nwant %+v", by, err, parts.Rows, want)
			}
		})
	}
	if _, err := b.Divide("a", "colour"); err == nil || !strings.Contains(err.Error(), "task, reason, stage") {
		t.Errorf("by something else: %v", err)
	}
	if b.TrainedAt("a", "g000003-0") != 1 || b.TrainedAt("a", "g000003-1") != 0 || b.TrainedAt("b", "g000003-0") != 0 {
		t.Error("rollouts stand in other batches")
	}
}

// However the books are divided, their rows add up to the balance.
func TestDivisionsAddUp(t *testing.T) {
	b := varied(t)
	for _, feed := range b.Feeds() {
		balance := b.Balance(feed)
		if !balance.AddsUp() || balance.Started != 22 {
			t.Errorf("feed %s: %+v", feed, balance)
		}
		for _, by := range Divisions {
			parts, err := b.Divide(feed, by)
			if err != nil {
				t.Fatal(err)
			}
			var sum Counts
			for _, r := range parts.Rows {
				if r.Started != r.Trained+r.Stale+r.Filtered+r.Failed+r.InFlight {
					t.Errorf("feed %s by %s: a row does not add up: %+v", feed, by, r)
				}
				sum = Counts{
					sum.Started + r.Started, sum.Trained + r.Trained, sum.Stale + r.Stale, sum.Filtered + r.Filtered,
					sum.Failed + r.Failed, sum.InFlight + r.InFlight,
				}
			}
			if want := balance.Counts; sum != want {
				t.Errorf("feed %s by %s: the rows add up to %+v, the balance is %+v", feed, by, sum, want)
			}
		}
	}
}

func TestRolloutsOfTheBooks(t *testing.T) {
	b := varied(t)
	var ids []string
	for r := range b.All() {
		ids = append(ids, r.ID)
	}
	found, ok := b.Find("g000003-2")
	if _, never := b.Find("g000099-0"); !ok || never {
		t.Errorf("found %v, and what never was %v", ok, never)
	}
	if len(ids) != 22 || ids[0] != "g000001-0" || ids[21] != "xmine-0" {
		t.Errorf("rollouts %v", ids)
	}
	found.Seq, found.Since = 0, 0
	want := Rollout{ID: "g000003-2", Group: "g000003", Task: "easy", PolicyVersion: 3, Turns: 2, Tokens: 204,
		Sampled: 102, StopReason: "finished",
		TaskDigest: "sha256:x", Member: events.Member{Rollout: "g000003-2"},
		Progress: events.Progress{Stage: events.StageFeed, Answered: true, Finished: true, Scored: true}}
	if found != want {
		t.Errorf("got  %+v\nwant %+v", found, want)
	}
	for range b.All() {
		break // a reader may stop early
	}
	before := b.Balance("a")
	b.start("g000003-2", "another")
	if b.Balance("a") != before {
		t.Error("a start that stands twice counts twice")
	}
}

func TestAtRest(t *testing.T) {
	b := newBook(t)
	b.group(1)
	b.group(2)
	at := func(what string, want bool) {
		t.Helper()
		if b.AtRest() != want {
			t.Errorf("%s: at rest %v", what, !want)
		}
	}
	at("an open run", false)
	b.happen(events.RunClosedType, "r", events.RunClosed{})
	at("with groups to come", false)
	for _, feed := range b.Feeds() {
		b.ready(feed, 1, "g000001-0", "g000001-1")
	}
	at("with a group that is in no batch", false)
	for _, feed := range b.Feeds() {
		b.happen(events.GroupDroppedType, "g000002", events.GroupDropped{Feed: feed, Reason: events.DropStale,
			Filter: "closed"})
	}
	at("with batches that nobody took yet", true)
}
