package eventlog_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
)

// deletable makes a run whose stream lets anybody purge it.
func deletable(t *testing.T, log *eventlog.Log, run string) {
	t.Helper()
	cfg := jetstream.StreamConfig{Name: events.RunStream(run), Subjects: []string{"rondo.v1." + run + ".>"},
		DenyDelete: true, AllowDirect: true}
	if _, err := log.JetStream().CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	link(t, log, run, events.RunOpenedType, run, events.RunOpened{Config: runfile.DefaultRunConfig()})
}

// link appends an event behind the last link of its chain.
func link(t testing.TB, log *eventlog.Log, run string, typ events.Type, entity string, data any) events.Event {
	t.Helper()
	last, err := log.Last(t.Context(), run, typ.Kind(), entity)
	if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
		t.Fatal(err)
	}
	e, err := events.New(run, typ, entity, fmt.Sprint(last.Seq), data)
	if err != nil {
		t.Fatal(err)
	}
	e.Prev, e.Source = last.Seq, "test"
	if typ.Routed() {
		e.Route = "pool-shell"
	}
	stored, _, err := log.Appender.Append(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// episodes appends rollouts of a group side by side, and then their outcomes one after the other,
// with a remark behind every third. Of the first one the outcome is a failure.
func episodes(t testing.TB, log *eventlog.Log, run string, group, rollouts, turns, size int) (ids []string) {
	t.Helper()
	g := events.GroupID(int64(group))
	for i := range rollouts {
		ids = append(ids, events.RolloutID(g, i))
		link(t, log, run, events.RolloutStartedType, ids[i], events.RolloutStarted{Group: g, Member: i})
	}
	for turn := range turns {
		for _, id := range ids {
			link(t, log, run, events.TurnSampledType, id,
				events.TurnSampled{Turn: turn, Content: strings.Repeat(fmt.Sprintf("%s %d ", id, turn), size/14)})
			link(t, log, run, events.ToolsCompletedType, id, events.ToolsCompleted{Turn: turn})
		}
	}
	for i, id := range ids {
		if i == 0 {
			link(t, log, run, events.RolloutFailedType, id, events.RolloutFailed{Stage: "test"})
			continue
		}
		link(t, log, run, events.RolloutFinishedType, id, events.RolloutFinished{})
		link(t, log, run, events.RolloutScoredType, id, events.RolloutScored{Reward: float64(i)})
		if i%3 == 0 {
			link(t, log, run, events.RolloutAnnotatedType, id, events.RolloutAnnotated{Text: "behind"})
		}
	}
	return ids
}

// TestReadersOfWhatWasPurged takes one ended rollout after the other from a run's stream, and
// compares all that can be read with what was recorded.
func TestReadersOfWhatWasPurged(t *testing.T) {
	log := natstest.Log(t)
	deletable(t, log, "r")
	ids := episodes(t, log, "r", 1, 7, 3, 300)
	open := events.RolloutID(events.GroupID(2), 0)
	link(t, log, "r", events.RolloutStartedType, open, events.RolloutStarted{Group: events.GroupID(2)})
	if _, err := log.Appender.Seal(t.Context(), "r", true); err != nil {
		t.Fatal(err)
	}
	link(t, log, "r", events.TurnSampledType, open, events.TurnSampled{Content: "not archived"})
	want := everything(t, log, "r")
	known := read(t, log, want, ids)
	stream, err := log.JetStream().Stream(t.Context(), events.RunStream("r"))
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range ids {
		last, err := log.Last(t.Context(), "r", events.RolloutStartedType.Kind(), id)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject(events.Chain("r", last.Type.Kind(), id)),
			jetstream.WithPurgeSequence(last.Seq)); err != nil {
			t.Fatal(err)
		}
		// One that has read nothing yet, and remembers nothing.
		fresh, err := eventlog.New(log.Conn(), log.Store())
		if err != nil {
			t.Fatal(err)
		}
		same(t, fmt.Sprintf("without %d rollouts", i+1), everything(t, fresh, "r"), want)
		if again := read(t, fresh, want, ids); !reflect.DeepEqual(again, known) {
			t.Fatalf("without %d rollouts:\n%+v\nwant\n%+v", i+1, again, known)
		}
	}
	zombie, err := events.New("r", events.RolloutFailedType, ids[2], "0", events.RolloutFailed{})
	if err != nil {
		t.Fatal(err)
	}
	var conflict *eventlog.Conflict
	if _, _, err := log.Appender.Append(t.Context(), zombie); !errors.As(err, &conflict) {
		t.Errorf("who knows nothing of the chain: %v, want a conflict", err)
	}
	again := want[1]
	again.Seq = 0
	if stored, adopted, err := log.Appender.Append(t.Context(), again); err != nil || !adopted || stored.Seq != 2 {
		t.Errorf("the first link once more: adopted %t at %d, %v", adopted, stored.Seq, err)
	}
	link(t, log, "r", events.RolloutAnnotatedType, ids[2], events.RolloutAnnotated{Text: "later"})
}

// readings are what is read of a run beside all of it in order.
type readings struct {
	From      map[uint64]int
	Followed  int
	Events    []string
	Histories map[string]int
	Starts    map[string]string
	Rollouts  map[string]float64
	Ended     int
	Keys      []string
	Findings  []string
}

func read(t *testing.T, log *eventlog.Log, want []events.Event, ids []string) readings {
	t.Helper()
	ctx, n := t.Context(), uint64(len(want))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	r := readings{From: map[uint64]int{}, Histories: map[string]int{}, Starts: map[string]string{},
		Rollouts: map[string]float64{}}
	for from := uint64(1); from <= n; from += 5 {
		for e, err := range log.All(ctx, "r", from) {
			must(err)
			if !equal(e, want[from-1+uint64(r.From[from])]) {
				t.Fatalf("from %d: %s came at %d", from, e.ID, e.Seq)
			}
			r.From[from]++
		}
	}
	stop := errors.New("all of it")
	err := log.Follow(ctx, "r", 3, "", func(e events.Event) error {
		if r.Followed++; !equal(e, want[r.Followed+1]) {
			return fmt.Errorf("%s came at %d", e.ID, e.Seq)
		}
		if e.Seq == n {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) {
		t.Fatal(err)
	}
	for seq := n; seq > 0; seq-- {
		e, err := log.Event(ctx, "r", seq)
		must(err)
		if !equal(e, want[seq-1]) {
			t.Fatalf("sequence %d is %s", seq, e.ID)
		}
		r.Events = append(r.Events, e.ID)
	}
	for _, id := range ids {
		last, err := log.Last(ctx, "r", events.RolloutStartedType.Kind(), id)
		must(err)
		links, err := log.History(ctx, "r", last.Seq)
		must(err)
		r.Histories[id] = len(links)
		start, err := log.LastOfType(ctx, "r", events.RolloutStartedType, id)
		must(err)
		r.Starts[id] = start.ID
		turn, err := log.LastOfType(ctx, "r", events.RolloutRetriedType, id)
		if !errors.Is(err, eventlog.ErrNotFound) {
			t.Fatalf("a retry that never was: %s, %v", turn.ID, err)
		}
		rollout, err := log.Rollout(ctx, "r", id)
		must(err)
		if len(rollout.Turns) != 3 || len(rollout.Tools) != 3 {
			t.Fatalf("%s has %d turns", id, len(rollout.Turns))
		}
		if rollout.Scored != nil {
			r.Rollouts[id] = rollout.Scored.Reward
		}
	}
	for _, err := range log.Rollouts(ctx, "r") {
		must(err)
		r.Ended++
	}
	last, err := log.Archive.Reach(ctx, "r", 1, func(key string) error {
		if !strings.Contains(key, "/log/") {
			r.Keys = append(r.Keys, key)
		}
		return nil
	})
	must(err)
	if last != n {
		t.Fatalf("reached %d of %d", last, n)
	}
	sealed, err := log.Segments(ctx, "r")
	must(err)
	r.Findings, err = log.Archive.Verify(ctx, "r", sealed)
	must(err)
	return r
}
