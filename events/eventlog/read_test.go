package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
)

func TestHistory(t *testing.T) {
	t.Parallel()
	log := openLog(t)
	var mine []events.Event
	prev := map[string]uint64{}
	for i := range 30 {
		rollout := events.RolloutID("g000001", i%3)
		e := note(t, rollout, strconv.Itoa(i), "")
		e.Prev = prev[rollout]
		stored := mustAppend(t, log, e)
		prev[rollout] = stored.Seq
		if i%3 == 1 {
			mine = append(mine, stored)
		}
	}
	for _, until := range []int{0, 4, 9} {
		links, err := log.History(t.Context(), run, mine[until].Seq)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := ids(links), ids(mine[:until+1]); !slices.Equal(got, want) {
			t.Errorf("up to link %d: %v, want %v", until, got, want)
		}
	}
	last, err := log.Last(t.Context(), run, "rollout", "g000001-1")
	if err != nil || last.Seq != mine[9].Seq {
		t.Errorf("last link at %d, %v", last.Seq, err)
	}
}

// A chain that points forward would be walked for ever.
func TestHistoryOfBrokenChain(t *testing.T) {
	t.Parallel()
	log := openLog(t)
	e := note(t, "g000001-0", "a", "")
	e.Prev, e.Time = 1, time.Now()
	if _, err := log.JetStream().PublishMsg(t.Context(), e.Message()); err != nil {
		t.Fatal(err)
	}
	if _, err := log.History(t.Context(), run, 1); !errors.Is(err, events.ErrMalformed) {
		t.Errorf("%v", err)
	}
}

func ids(links []events.Event) (ids []string) {
	for _, e := range links {
		ids = append(ids, fmt.Sprintf("%d:%s", e.Seq, e.ID))
	}
	return ids
}

func TestReadsOfWhatIsMissing(t *testing.T) {
	t.Parallel()
	log := openLog(t)
	chain(t, log, "g000001-0", "a")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	all := func(run string) error {
		for _, err := range log.All(ctx, run, 1) {
			return err
		}
		return nil
	}
	for name, read := range map[string]func() error{
		"event of a missing run": func() error { _, err := log.Event(ctx, "none", 1); return err },
		"last of a missing run": func() error {
			_,
				err := log.Last(ctx, "none", "rollout", "g000001-0")
			return err
		},
		"history of a missing run": func() error { _, err := log.History(ctx, "none", 3); return err },
		"rollout of a missing run": func() error { _, err := log.Rollout(ctx, "none", "g000001-0"); return err },
		"config of a missing run":  func() error { _, err := log.Config(ctx, "none"); return err },
		"incarnation of none":      func() error { _, err := log.Incarnation(ctx, "none"); return err },
		"fill of a missing run":    func() error { _, err := log.Fill(ctx, "none"); return err },
		"all of a missing run":     func() error { return all("none") },
		"following a missing run":  func() error { return log.Follow(ctx, "none", 1, "", nil) },
		"deleting a missing run":   func() error { return log.Streams.DeleteRun(ctx, "none") },
		"a sequence yet to come":   func() error { _, err := log.Event(ctx, run, 2); return err },
		"the last link of no rollout": func() error {
			_,
				err := log.Last(ctx, run, "rollout", "g000001-1")
			return err
		},
		"no event of the type": func() error {
			_, err := log.LastOfType(ctx, run, events.RolloutScoredType, "g000001-0")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := read(); !errors.Is(err, eventlog.ErrNotFound) {
				t.Errorf("%s: %v, want not found", name, err)
			}
		})
	}
	// A rollout is not the prefix of another one's name, and a run without a first
	// event has no configuration.
	if _, err := log.Config(ctx, run); !errors.Is(err, events.ErrMalformed) {
		t.Errorf("configuration of a run that begins otherwise: %v", err)
	}
}

func TestAllEnds(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t)
	// Not made by EnsureRun: an operator may allow deletes, and a restored backup may have gaps.
	stream, err := log.JetStream().CreateStream(t.Context(), jetstream.StreamConfig{
		Name: events.RunStream(run), Subjects: []string{"rondo.v1." + run + ".>"}, AllowDirect: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	count := func(from uint64) (n int) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, err := range log.All(ctx, run, from) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	if n := count(1); n != 0 {
		t.Errorf("an empty stream has %d events", n)
	}
	chain(t, log, "g000001-0", "a", "b", "c", "d")
	for from, want := range map[uint64]int{0: 4, 1: 4, 3: 2, 4: 1, 5: 0, 99: 0} {
		if n := count(from); n != want {
			t.Errorf("from %d: %d events, want %d", from, n, want)
		}
	}
	n := 0
	for range log.All(t.Context(), run, 1) {
		if n++; n == 2 {
			break
		}
	}
	if n != 2 {
		t.Errorf("a reader that leaves early has seen %d", n)
	}
	for _, seq := range []uint64{4, 2} {
		if err := stream.DeleteMsg(t.Context(), seq); err != nil {
			t.Fatal(err)
		}
	}
	for from, want := range map[uint64]int{1: 2, 3: 1, 4: 0} {
		if n := count(from); n != want {
			t.Errorf("without the last event, from %d: %d events, want %d", from, n, want)
		}
	}
	if err := stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := count(1); n != 0 {
		t.Errorf("a purged stream has %d events", n)
	}
}

// follower collects what Follow tells.
func follow(ctx context.Context, log *eventlog.Log, from uint64, filter string) (<-chan events.Event, <-chan error) {
	out, done := make(chan events.Event, 10000), make(chan error, 1)
	go func() {
		done <- log.Follow(ctx, run, from, filter, func(e events.Event) error { out <- e; return nil })
	}()
	return out, done
}

func expectSequences(t *testing.T, out <-chan events.Event, from, to uint64) {
	t.Helper()
	for want := from; want <= to; want++ {
		select {
		case e := <-out:
			if e.Seq != want {
				t.Fatalf("sequence %d came, want %d: a gap or a repeat", e.Seq, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("sequence %d does not come", want)
		}
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	log := openLog(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, done := follow(ctx, log, 2, "")
	var ordinals []string
	for i := range 1200 { // more than one pull
		ordinals = append(ordinals, strconv.Itoa(i))
	}
	chain(t, log, "g000001-0", ordinals...)
	expectSequences(t, out, 2, 1200)
	// A filter sees its part.
	one := chain(t, log, "g000001-1", "a")
	filtered, _ := follow(ctx, log, 0, events.Chain(run, "rollout", "g000001-1"))
	expectSequences(t, filtered, one[0].Seq, one[0].Seq)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Follow ended with %v", err)
	}
	mine := errors.New("mine")
	if err := log.Follow(t.Context(), run, 1, "", func(events.Event) error { return mine }); !errors.Is(err, mine) {
		t.Errorf("Follow returned %v, want the function's error", err)
	}
}

func TestFollowGoesOnAfterRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func(listen string) *embedded.Server {
		s, err := embedded.Start(embedded.Options{Dir: dir, Listen: listen, SyncInterval: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	address := fmt.Sprintf("127.0.0.1:%d", natstest.FreePorts(t, 1)[0])
	server := start(address)
	nc, err := nats.Connect(server.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	log, err := eventlog.New(nc, natstest.Store(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Streams.EnsureRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, done := follow(ctx, log, 1, "")
	prev := uint64(0)
	for round := range uint64(3) {
		for i := range 100 {
			e := note(t, "g000001-0", fmt.Sprintf("%d-%d", round, i), "")
			e.Prev = prev
			prev = mustAppend(t, log, e).Seq
		}
		if round < 2 { // the last ones are on their way when the server stops
			expectSequences(t, out, 100*round+1, 100*round+50)
			server.Shutdown()
			server = start(address)
			expectSequences(t, out, 100*round+51, 100*round+100)
		}
	}
	expectSequences(t, out, 201, 300)
	server.Shutdown()
	// A reader whose server is away ends when it is told to, at once.
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Follow ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Follow does not end while its server is away")
	}
	if _, err := log.Last(ctx, run, "rollout", "g000001-0"); err == nil {
		t.Error("read something from a server that is away")
	}
}

// TestFollowAsksAgain: the first answer that a reader waits for is lost.
func TestFollowAsksAgain(t *testing.T) {
	t.Parallel()
	nc, line := natstest.ConnectOver(t, natstest.Server(t))
	log, err := eventlog.New(nc, natstest.Store(t))
	if err == nil {
		err = log.Streams.EnsureRun(t.Context(), run)
	}
	if err != nil {
		t.Fatal(err)
	}
	chain(t, log, "g000001-0", "a", "b")
	line.Lose("stream_info_response", 1)
	out, _ := follow(t.Context(), log, 1, "")
	expectSequences(t, out, 1, 2)
	if line.Left() != 0 {
		t.Error("no answer was lost")
	}
}

func TestFollowNoticesAnotherStream(t *testing.T) {
	t.Parallel()
	log := openLog(t)
	chain(t, log, "g000001-0", "a", "b", "c")
	before, err := log.Incarnation(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	out, done := follow(t.Context(), log, 1, "")
	expectSequences(t, out, 1, 3)
	if first, err := log.Event(t.Context(), run, 1); err != nil || first.Entity != "g000001-0" {
		t.Fatalf("%s, %v", first.ID, err)
	}
	if err := log.Streams.DeleteRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, eventlog.ErrNotFound) && !errors.Is(err, eventlog.ErrReplaced) {
		t.Errorf("following a deleted run ended with %v", err)
	}
	if err := log.Streams.EnsureRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	chain(t, log, "g000002-0", "x")
	err = log.FollowStream(t.Context(), run, before, 1,
		"", func(events.Event) error { return errors.New("an event of another stream") })
	if !errors.Is(err, eventlog.ErrReplaced) {
		t.Errorf("going on in another stream: %v", err)
	}
	if first, err := log.Event(t.Context(), run, 1); err != nil || first.Entity != "g000002-0" {
		t.Errorf("the first event is %s of the deleted stream, %v", first.ID, err)
	}
}

// Other processes' logs remember events too; one that looks at the stream again
// notices that it is another.
func TestRememberedEventsOfAnotherStream(t *testing.T) {
	t.Parallel()
	server, store := natstest.Server(t), natstest.Store(t)
	connect := func() *eventlog.Log {
		log, err := eventlog.New(natstest.Connect(t, server), store)
		if err != nil {
			t.Fatal(err)
		}
		return log
	}
	mine, theirs := connect(), connect()
	// a server whose last stream is deleted may refuse the next: see docs/upstream
	if err := theirs.Streams.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, rollout := range []string{"g000001-0", "g000002-0"} {
		if err := theirs.Streams.EnsureRun(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		chain(t, theirs, rollout, "a")
		if _, err := mine.Incarnation(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		if e, err := mine.Event(t.Context(), run, 1); err != nil || e.Entity != rollout {
			t.Errorf("the first event is of %s, want %s, %v", e.Entity, rollout, err)
		}
		if err := theirs.Streams.DeleteRun(t.Context(), run); err != nil {
			t.Fatal(err)
		}
	}
}
