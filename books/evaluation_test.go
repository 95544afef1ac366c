package books

import (
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// An evaluation has no feed: its books have one side, on which every rollout still
// has exactly one outcome.
func TestBooksOfAnEvaluation(t *testing.T) {
	b := &book{Run: New("r"), t: t}
	version := int64(4)
	b.happen(events.RunOpenedType, "r", events.RunOpened{Config: runfile.RunConfig{Epochs: 1, PolicyVersion: &version}})
	b.happen(events.WeightsPublishedType, "policy", events.WeightsPublished{Version: 9})
	if b.PolicyVersion != 4 || b.FirstFeed() != NoFeed || !slices.Equal(b.Feeds(), []string{NoFeed}) {
		t.Errorf("version %d, feeds %q", b.PolicyVersion, b.Feeds())
	}
	b.group(1)
	b.group(2)
	b.happen(events.GroupOpenedType, "g000003", events.GroupOpened{Size: 2})
	for i := range 2 {
		b.happen(events.RolloutStartedType, events.RolloutID("g000003", i),
			events.RolloutStarted{Group: "g000003", Member: i})
	}
	b.happen(events.GroupCompletedType,
		"g000001", events.GroupCompleted{Members: []events.Member{{Rollout: "g000001-0"}, {Rollout: "g000001-1"}}})
	b.happen(events.RolloutFailedType, "g000003-0", events.RolloutFailed{Class: events.ClassSandbox})
	b.happen(events.RolloutInvalidatedType, "g000003-1", events.RolloutInvalidated{Reason: "leak"})
	b.happen(events.RunClosedType, "r", events.RunClosed{})
	balance := func() Balance { return b.Balance(NoFeed) }
	if got, want := balance(), (Balance{Counts: Counts{6, 0, 0, 2, 1, 3}, Invalidated: 1}); got != want ||
		!got.AddsUp() || b.AtRest() {
		t.Errorf("under way, at rest %v: %+v, want %+v", b.AtRest(), got, want)
	}
	b.happen(events.GroupCompletedType,
		"g000002", events.GroupCompleted{Members: []events.Member{{Rollout: "g000002-0"}, {Rollout: "g000002-1"}}})
	b.happen(events.GroupCompletedType, "g000003", events.GroupCompleted{Members: []events.Member{{Rollout: "g000003-0",
		Failed: true}, {Rollout: "g000003-1", Failed: true}}})
	if got, want := balance(), (Balance{Counts: Counts{6, 0, 0, 5, 1, 0}, Invalidated: 1}); got != want ||
		!got.AddsUp() || !b.AtRest() {
		t.Errorf("at the end, at rest %v: %+v, want %+v", b.AtRest(), got, want)
	}
	parts, err := b.Divide(NoFeed, ByReason)
	want := []Row{{Key: "failed: sandbox", Counts: Counts{Started: 1, Failed: 1}},
		{Key: "filtered: evaluated", Counts: Counts{Started: 4, Filtered: 4}},
		{Key: "filtered: invalidated", Counts: Counts{Started: 1, Filtered: 1}}}
	if err != nil || !slices.Equal(parts.Rows, want) {
		t.Errorf("by reason: %+v, %v", parts.Rows, err)
	}
}
