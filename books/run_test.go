package books

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// book is the books of a run whose events are written by hand.
type book struct {
	*Run
	t   *testing.T
	seq uint64
}

func newBook(t *testing.T) *book {
	b := &book{Run: New("r"), t: t}
	b.happen(events.RunOpenedType, "r", events.RunOpened{Config: runfile.RunConfig{Feeds: []runfile.Feed{{Name: "a"},
		{Name: "b"}}}})
	return b
}

func (b *book) happen(typ events.Type, entity string, data any) {
	b.t.Helper()
	e, err := events.New("r", typ, entity, "0", data)
	if err != nil {
		b.t.Fatal(err)
	}
	b.seq++
	e.Seq = b.seq
	if err := b.Apply(e); err != nil {
		b.t.Fatal(err)
	}
}

// group starts a group of two and scores both, with the member's number as reward.
func (b *book) group(n int64) string {
	id := events.GroupID(n)
	b.happen(events.GroupOpenedType, id, events.GroupOpened{Size: 2})
	for i := range 2 {
		b.happen(events.RolloutStartedType, events.RolloutID(id, i), events.RolloutStarted{Group: id, Member: i})
		b.happen(events.RolloutScoredType, events.RolloutID(id, i), events.RolloutScored{Reward: float64(i)})
	}
	return id
}

func (b *book) ready(feed string, step int64, rollouts ...string) {
	var groups []string
	for _, r := range rollouts {
		groups = append(groups, events.GroupOf(r))
	}
	b.happen(events.BatchReadyType, feed, events.BatchReady{Step: step, Groups: slices.Compact(groups),
		Rollouts: rollouts, RewardMean: float64(step)})
}

func TestOutcomes(t *testing.T) {
	drop := func(b *book, feed, reason string) {
		b.happen(events.GroupDroppedType, "g000001", events.GroupDropped{Feed: feed, Reason: reason})
	}
	both := []string{"g000001-0", "g000001-1"}
	for name, c := range map[string]struct {
		happens func(b *book)
		a       [2]Outcome // of the two members, for feed a
		b       [2]Outcome
	}{
		"nothing": {func(*book) {}, [2]Outcome{InFlight, InFlight}, [2]Outcome{InFlight, InFlight}},
		"a member failed": {func(b *book) { b.happen(events.RolloutFailedType, both[1], events.RolloutFailed{}) },
			[2]Outcome{InFlight, Failed}, [2]Outcome{InFlight, Failed}},
		"stale for one feed": {func(b *book) { drop(b, "a", events.DropStale) }, [2]Outcome{Stale, Stale},
			[2]Outcome{InFlight, InFlight}},
		"filtered for the other": {func(b *book) { drop(b, "b", events.DropFiltered) }, [2]Outcome{InFlight, InFlight},
			[2]Outcome{Filtered, Filtered}},
		"batched and not taken": {func(b *book) { b.ready("a", 1, both...) }, [2]Outcome{InFlight, InFlight},
			[2]Outcome{InFlight, InFlight}},
		"batched and taken": {func(b *book) {
			b.ready("a", 1, both...)
			b.happen(events.BatchConsumedType, "a", events.BatchConsumed{Step: 1})
		}, [2]Outcome{Trained, Trained}, [2]Outcome{InFlight, InFlight}},
		"left out by the trainer": {func(b *book) {
			b.ready("a", 1, both...)
			b.happen(events.BatchConsumedType, "a", events.BatchConsumed{Step: 1, Stale: both[1:]})
			// what is measured later takes nothing back
			b.happen(events.BatchConsumedType, "a", events.BatchConsumed{Step: 1,
				LogprobGap: &events.LogprobGap{Tokens: 1}})
		}, [2]Outcome{Trained, Stale}, [2]Outcome{InFlight, InFlight}},
		"left out, and trained on after a rewind": {func(b *book) {
			b.ready("a", 1, both...)
			b.happen(events.BatchConsumedType, "a", events.BatchConsumed{Step: 1, Stale: both})
			b.happen(events.BatchRewoundType, "a", events.BatchRewound{ToStep: 0})
			b.happen(events.BatchConsumedType, "a", events.BatchConsumed{Step: 1})
		}, [2]Outcome{Trained, Trained}, [2]Outcome{InFlight, InFlight}},
		"batched without one": {func(b *book) {
			b.ready("a", 1, both[0])
			b.happen(events.BatchConsumedType, "a", events.BatchConsumed{Step: 1})
		}, [2]Outcome{Trained, Filtered}, [2]Outcome{InFlight, InFlight}},
		"a drop that raced with a batch": {func(b *book) {
			drop(b, "a", events.DropStale)
			b.ready("a", 1, both...)
			b.happen(events.BatchConsumedType, "a", events.BatchConsumed{Step: 1})
		}, [2]Outcome{Trained, Trained}, [2]Outcome{InFlight, InFlight}},
		"a batch that raced with a drop": {func(b *book) {
			b.ready("a", 1, both...)
			drop(b, "a", events.DropStale)
			b.happen(events.BatchConsumedType, "a", events.BatchConsumed{Step: 1})
		}, [2]Outcome{Trained, Trained}, [2]Outcome{InFlight, InFlight}},
		"rewound": {func(b *book) {
			b.ready("a", 1, both...)
			b.happen(events.BatchConsumedType, "a", events.BatchConsumed{Step: 1})
			b.happen(events.BatchRewoundType, "a", events.BatchRewound{ToStep: 0})
		}, [2]Outcome{InFlight, InFlight}, [2]Outcome{InFlight, InFlight}},
		"rewound and taken again": {func(b *book) {
			b.ready("a", 1, both...)
			for range 2 {
				b.happen(events.BatchConsumedType, "a", events.BatchConsumed{Step: 1})
				b.happen(events.BatchRewoundType, "a", events.BatchRewound{ToStep: 0})
			}
			b.happen(events.BatchConsumedType, "a", events.BatchConsumed{Step: 1})
		}, [2]Outcome{Trained, Trained}, [2]Outcome{InFlight, InFlight}},
		"all invalidated before the group was complete": {func(b *book) {
			for _, id := range both {
				b.happen(events.RolloutInvalidatedType, id, events.RolloutInvalidated{})
			}
			b.happen(events.GroupCompletedType, "g000001",
				events.GroupCompleted{Members: []events.Member{{Rollout: both[0], Failed: true},
					{Rollout: both[1], Failed: true}}})
		}, [2]Outcome{Filtered, Filtered}, [2]Outcome{Filtered, Filtered}},
		"one failed, one invalidated": {func(b *book) {
			b.happen(events.RolloutFailedType, both[0], events.RolloutFailed{})
			b.happen(events.RolloutInvalidatedType, both[1], events.RolloutInvalidated{})
			b.happen(events.GroupCompletedType, "g000001",
				events.GroupCompleted{Members: []events.Member{{Rollout: both[0], Failed: true},
					{Rollout: both[1], Failed: true}}})
		}, [2]Outcome{Failed, Filtered}, [2]Outcome{Failed, Filtered}},
		"invalidated after it was trained on": {func(b *book) {
			b.ready("a", 1, both...)
			b.happen(events.BatchConsumedType, "a", events.BatchConsumed{Step: 1})
			b.happen(events.RolloutInvalidatedType, both[0], events.RolloutInvalidated{})
		}, [2]Outcome{Trained, Trained}, [2]Outcome{InFlight, InFlight}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(t)
			b.group(1)
			c.happens(b)
			for feed, want := range map[string][2]Outcome{"a": c.a, "b": c.b} {
				if got := [2]Outcome{b.Outcome(feed, both[0]), b.Outcome(feed, both[1])}; got != want {
					t.Errorf("feed %s: %v, want %v", feed, got, want)
				}
				if balance := b.Balance(feed); !balance.AddsUp() || balance.Started != 2 {
					t.Errorf("feed %s does not add up: %+v", feed, balance)
				}
			}
		})
	}
}

func TestBalance(t *testing.T) {
	b := newBook(t)
	for n := range int64(6) {
		b.group(n + 1)
	}
	b.happen(events.RolloutFailedType, "g000001-0", events.RolloutFailed{})
	b.ready("a", 1, "g000001-1", "g000002-0", "g000002-1")
	b.ready("a", 2, "g000003-0")
	b.happen(events.BatchConsumedType, "a", events.BatchConsumed{Step: 1})
	b.happen(events.GroupDroppedType, "g000004", events.GroupDropped{Feed: "a", Reason: events.DropStale})
	b.happen(events.RolloutInvalidatedType, "g000002-1", events.RolloutInvalidated{})
	// What never was started is in no book, whatever is said or asked about it.
	b.happen(events.RolloutInvalidatedType, "g000099-0", events.RolloutInvalidated{})
	b.Outcome("a", "g000098-0")
	want := Balance{Feed: "a", Counts: Counts{12, 3, 2, 1, 1, 5}, Invalidated: 1, Steps: 2, Consumed: 1}
	if got := b.Balance("a"); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := b.Balance("b"); got.Started != 12 || got.Failed != 1 || got.InFlight != 11 || !got.AddsUp() {
		t.Errorf("feed b: %+v", got)
	}
	if !slices.Equal(b.Feeds(), []string{"a", "b"}) || b.Groups != 6 || b.Events != int64(b.seq) || b.LastSeq != b.seq {
		t.Errorf("feeds %v, %d groups, %d events up to %d", b.Feeds(), b.Groups, b.Events, b.LastSeq)
	}
	if !slices.Equal(b.RewardCurve("a"), []float64{1, 2}) || len(b.Batches("a")) != 2 || b.Consumed("a") != 1 {
		t.Errorf("curve %v", b.RewardCurve("a"))
	}
	if r, ok := b.Find("g000001-1"); !ok || !r.Scored || r.Reward != 1 {
		t.Errorf("%+v, %v", r, ok)
	}
	if _, ok := b.Find("g000098-0"); ok {
		t.Error("a rollout that never was is in the books")
	}
	if got := b.Outcome("a", "g000004-1"); b.Count() != 12 || got != Stale {
		t.Errorf("%d rollouts, one of them %s", b.Count(), got)
	}
}

// What an export for fine-tuning holds was used when it is there: nobody needs to consume it.
func TestExports(t *testing.T) {
	b := &book{Run: New("r"), t: t}
	least := 1.0
	b.happen(events.RunOpenedType, "r", events.RunOpened{Config: runfile.RunConfig{Feeds: []runfile.Feed{{Name: "sft",
		MinReward: &least}, {Name: "a"}}}})
	b.group(1)
	for _, feed := range b.Feeds() {
		b.ready(feed, 1, "g000001-1")
	}
	b.ready("other", 1)
	if feeds := b.Feeds(); !slices.Equal(feeds, []string{"sft", "a", "other"}) {
		t.Errorf("feeds %v: the run's first does not come first", feeds)
	}
	if a, sft := b.Balance("a"), b.Balance("sft"); a.Trained != 0 || a.InFlight != 1 || sft.Trained != 1 ||
		sft.InFlight != 0 || sft.Filtered != 1 {
		t.Errorf("a %+v, sft %+v", a, sft)
	}
}

func TestAddsUp(t *testing.T) {
	right := Balance{Counts: Counts{15, 1, 2, 3, 4, 5}, Invalidated: 9}
	if !right.AddsUp() {
		t.Errorf("%+v does not add up", right)
	}
	for i, change := range []func(*Balance){
		func(b *Balance) { b.Started++ }, func(b *Balance) { b.Trained-- }, func(b *Balance) { b.Stale++ },
		func(b *Balance) { b.Filtered++ }, func(b *Balance) { b.Failed++ }, func(b *Balance) { b.InFlight-- },
	} {
		wrong := right
		if change(&wrong); wrong.AddsUp() {
			t.Errorf("change %d adds up: %+v", i, wrong)
		}
	}
}

func TestQuarters(t *testing.T) {
	for _, c := range []struct {
		curve       []float64
		first, last float64
	}{
		{nil, 0, 0}, {[]float64{3}, 3, 3}, {[]float64{1, 2, 3}, 1, 3}, {[]float64{0, 0, 1, 1, 2, 2, 4, 6}, 0, 5},
		{[]float64{1, 2, 3, 4, 5, 6, 7, 8, 9}, 1.5, 8.5},
	} {
		if first, last := Quarters(c.curve); math.Abs(first-c.first) > 1e-9 || math.Abs(last-c.last) > 1e-9 {
			t.Errorf("%v: %g and %g, want %g and %g", c.curve, first, last, c.first, c.last)
		}
	}
}

func TestRead(t *testing.T) {
	log := natstest.Log(t)
	if err := log.Streams.EnsureRun(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		e, err := events.New("r", events.RolloutStartedType, fmt.Sprintf("g000001-%d", i), "0", events.RolloutStarted{})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := log.Appender.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	l, err := Read(t.Context(), log.Reader, "r")
	if err != nil || l.Events != 3 || l.Balance("a").InFlight != 3 {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err := Read(t.Context(), log.Reader, "none"); err == nil {
		t.Error("a missing run has books")
	}
}

// TestWhoIsForgotten: a reader that forgets groups and rollouts holds nothing of them, whatever is
// stated of them later, and the totals stay.
func TestWhoIsForgotten(t *testing.T) {
	b := newBook(t)
	for n := range int64(50) {
		group := events.GroupID(n + 1)
		b.happen(events.GroupOpenedType, group, events.GroupOpened{Task: "easy", Size: 2})
		for i := range 2 {
			b.start(events.RolloutID(group, i), "easy")
		}
		b.happen(events.RolloutFailedType, events.RolloutID(group, 0), events.RolloutFailed{})
		b.Forget(events.RolloutID(group, 0))
		if _, found := b.Find(events.RolloutID(group, 0)); found || b.Count() != 1 {
			t.Fatalf("%d rollouts are held", b.Count())
		}
		b.happen(events.RolloutScoredType, events.RolloutID(group, 1), events.RolloutScored{Reward: 1})
		b.ForgetGroup(group)
		b.happen(events.RolloutScoredType, events.RolloutID(group, 1), events.RolloutScored{})
		b.happen(events.GroupCompletedType, group,
			events.GroupCompleted{Members: []events.Member{{Rollout: events.RolloutID(group, 1)}}})
		if b.Size() != 0 || b.GroupCount() != 0 {
			t.Fatalf("behind group %s %d rollouts and groups are held", group, b.Size())
		}
	}
	if got, want := b.Totals, (Totals{Started: 100, Scored: 50, Failed: 50, Completed: 50}); got != want {
		t.Errorf("totals %+v, want %+v", got, want)
	}
}

// TestForgettingKeepsTheOrder: whatever is forgotten, in whatever order, the others keep theirs.
// Most forgetting walks over nothing that is held, and what is held bounds the memory.
func TestForgettingKeepsTheOrder(t *testing.T) {
	const groups = 200
	b := newBook(t)
	var order, groupOrder []string
	walks := 0
	check := func(what string) {
		t.Helper()
		var all, open []string
		for r := range b.All() {
			all = append(all, r.ID)
		}
		if !slices.Equal(all, order) || b.Count() != len(order) {
			t.Fatalf("%s: %d rollouts, %v, want %v", what, b.Count(), all, order)
		}
		if len(b.order) > 2*len(order) || len(b.groupOrder) > 2*len(groupOrder) {
			t.Fatalf("%s: %d and %d places for %d rollouts and %d groups",
				what, len(b.order), len(b.groupOrder), len(order), len(groupOrder))
		}
		if b.GroupCount() != len(groupOrder) {
			t.Fatalf("%s: %d groups, want %d", what, b.GroupCount(), len(groupOrder))
		}
		if len(order)%7 != 0 { // a look by place closes the holes
			return
		}
		for _, g := range b.GroupsOf(0, len(groupOrder)) {
			open = append(open, g.ID)
		}
		if !slices.Equal(open, groupOrder) {
			t.Fatalf("%s: groups %v, want %v", what, open, groupOrder)
		}
		if at := len(order) / 2; at < len(order) && b.RolloutAt(at).ID != order[at] {
			t.Fatalf("%s: %s is at place %d, want %s", what, b.RolloutAt(at).ID, at, order[at])
		}
	}
	forget := func(group string) {
		t.Helper()
		places := len(b.order) + len(b.groupOrder)
		b.ForgetGroup(group)
		if len(b.order)+len(b.groupOrder) < places {
			walks++
		}
		order = slices.DeleteFunc(order, func(id string) bool { return events.GroupOf(id) == group })
		groupOrder = slices.DeleteFunc(groupOrder, func(id string) bool { return id == group })
		check("without " + group)
	}
	begin := func(n int64) {
		group := b.group(n)
		order = append(order, events.RolloutID(group, 0), events.RolloutID(group, 1))
		groupOrder = append(groupOrder, group)
	}
	for n := range int64(groups) {
		begin(n + 1)
	}
	for n := range int64(groups) { // every third, then the others from the end, then what comes again
		if n%3 == 0 {
			forget(events.GroupID(n + 1))
		}
	}
	begin(1)
	check("one comes again")
	for n := int64(groups); n > 0; n-- {
		forget(events.GroupID(n))
	}
	if b.Size() != 0 || len(b.order)+len(b.groupOrder) != 0 {
		t.Errorf("%d rollouts and groups are held, in %d places", b.Size(), len(b.order)+len(b.groupOrder))
	}
	if walks > groups/4 {
		t.Errorf("the order was walked over for %d of %d groups", walks, groups)
	}
}

// TestDetails: of the rollouts that the reader names there is more, and of others nothing is kept.
func TestDetails(t *testing.T) {
	b := newBook(t)
	b.Detailed = func(rollout string) bool { return rollout == "g000001-0" }
	for _, id := range []string{"g000001-0", "g000001-1"} {
		b.start(id, "easy")
		b.happen(events.TurnSampledType, id, events.TurnSampled{PolicyVersion: 3,
			VersionSpans: []events.VersionSpan{{Version: 4}}})
		b.happen(events.RolloutRetriedType, id, events.RolloutRetried{Try: 1})
		b.happen(events.RolloutFinishedType, id, events.RolloutFinished{Sampled: 3,
			Masked: map[string]int{"titles": 2, "others": 1}, MaxVersion: 4, Trajectory: storage.Ref{Key: "k"}})
		b.happen(events.RolloutScoredType, id, events.RolloutScored{Components: map[string]float64{"tests": 1}})
		b.happen(events.RolloutInvalidatedType, id, events.RolloutInvalidated{Reason: "leak"})
	}
	r, _ := b.Find("g000001-0")
	want := &Detail{
		Versions: []int64{3, 4}, MaxVersion: 4, Trajectory: storage.Ref{Key: "k"},
		Components: map[string]float64{"tests": 1}, Retried: []events.RolloutRetried{{Try: 1}}, Invalidated: "leak",
	}
	if !reflect.DeepEqual(r.Detail, want) {
		t.Errorf("got  %+v\nwant %+v", r.Detail, want)
	}
	if r, ok := b.Find("g000001-1"); !ok || r.Detail != nil {
		t.Errorf("details that nobody wants: %+v", r.Detail)
	}
	if r.Sampled != 6 || b.Totals.Sampled != 12 {
		t.Errorf("%d tokens are sampled in a rollout, and %d in both, want 6 and 12, masked ones, too", r.Sampled,
			b.Totals.Sampled)
	}
}
