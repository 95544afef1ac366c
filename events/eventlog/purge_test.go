package eventlog_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/recovery"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/tests/nightly"
)

// forgetful makes a run whose stream holds so many bytes, and forgets.
func forgetful(t testing.TB, log *eventlog.Log, run string, size runfile.Size) {
	t.Helper()
	cfg := runfile.DefaultRunConfig()
	cfg.Log.MaxBytes, cfg.Log.Keep = size, runfile.KeepOpen
	if err := log.Streams.EnsureRunFor(t.Context(), run, cfg.Log); err != nil {
		t.Fatal(err)
	}
	link(t, log, run, events.RunOpenedType, run, events.RunOpened{Config: cfg})
}

// TestPurgeEnded: what is archived and over leaves the stream, again after each moment at which the
// one who purges may die, and nothing else does.
func TestPurgeEnded(t *testing.T) {
	log := natstest.Log(t)
	forgetful(t, log, "r", 2<<20)
	var ids []string
	pending := consumer(t, log, "r")
	rounds := nightly.Count(8, 20)
	for round := range rounds {
		group := episodes(t, log, "r", round+1, 4, 5, 48<<10) // 0.8 MB beside what is left
		ids = append(ids, group...)
		open := events.RolloutID(events.GroupID(int64(100+round)), 0)
		link(t, log, "r", events.RolloutStartedType, open,
			events.RolloutStarted{Group: events.GroupID(int64(100 + round))})
		// of earlier rounds, what had room until now
		if _, err := log.Archive.PurgeEnded(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
		for _, id := range group {
			if has, err := log.Has(t.Context(), "r", events.Event{Run: "r", Type: events.RolloutStartedType,
				Entity: id}.Subject()); err != nil || !has {
				t.Fatalf("round %d: %s is not archived and left the stream: %v", round, id, err)
			}
		}
		if _, err := log.Appender.Seal(t.Context(), "r", true); err != nil {
			t.Fatal(err)
		}
		purgeAndDie(t, log, "r", round%4)
		if n, err := log.Archive.PurgeEnded(t.Context(), "r"); err != nil || n > len(group) {
			t.Fatalf("round %d: %d rollouts, %v", round, n, err)
		}
		if n, err := log.Archive.PurgeEnded(t.Context(), "r"); err != nil || n != 0 {
			t.Fatalf("round %d, again: %d rollouts, %v", round, n, err)
		}
		stated(t, log, "r")
	}
	bytes, most, err := log.Size(t.Context(), "r")
	if err != nil || float64(bytes) > eventlog.PurgeAt*float64(most) {
		t.Fatalf("%d bytes of %d are left, %v", bytes, most, err)
	}
	all := everything(t, log, "r")
	total, tails := 0, 0
	for i, e := range all {
		if e.Seq != uint64(i+1) {
			t.Fatalf("%d comes at %d", e.Seq, i+1)
		}
		total += len(e.Data)
	}
	if total < int(most)*rounds*2/5 {
		t.Errorf("%d bytes of history on a stream of %d", total, most)
	}
	for _, id := range ids {
		rollout, err := log.Rollout(t.Context(), "r", id)
		if err != nil || len(rollout.Turns) != 5 || !rollout.Over() {
			t.Errorf("%s: %d turns, %v", id, len(rollout.Turns), err)
		}
		if _, err := log.Last(t.Context(), "r", events.RolloutStartedType.Kind(), id); err == nil {
			tails++
		}
		outcome := events.RolloutScoredType
		if rollout.Failed != nil {
			outcome = events.RolloutFailedType
		}
		if has, err := log.Has(t.Context(), "r", events.Event{Run: "r", Type: outcome,
			Entity: id}.Subject()); err != nil || !has {
			t.Errorf("the outcome of %s is not on the stream: %v", id, err)
		}
	}
	if tails != len(ids) {
		t.Errorf("%d of %d chains have their last link", tails, len(ids))
	}
	// Every start that is on the stream comes to who consumes starts, also those behind others that
	// were purged before they came.
	for want := 0; want < rounds; {
		msg, err := pending.Next(jetstream.FetchMaxWait(time.Minute))
		if err != nil {
			t.Fatalf("start %d: %v", want, err)
		}
		switch entity := strings.Split(msg.Subject(), ".")[4]; {
		case entity == events.RolloutID(events.GroupID(int64(100+want)), 0):
			want++
		case !slices.Contains(ids, entity):
			t.Fatalf("start %d is of %s", want, entity)
		}
	}
	sealed, err := log.Segments(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	if findings, err := log.Archive.Verify(t.Context(), "r", sealed); err != nil || len(findings) > 0 {
		t.Errorf("%v: %v", err, findings)
	}
	empty := elsewhere(t, log)
	for restoreAndDie(t, empty, "r", sealed) {
	}
	same(t, "restored", everything(t, empty, "r"), all[:sealed[len(sealed)-1].Last])
}

// consumer makes a durable consumer of a run's starts.
func consumer(t *testing.T, log *eventlog.Log, run string) jetstream.Consumer {
	t.Helper()
	c, err := log.JetStream().CreateConsumer(t.Context(), events.RunStream(run), jetstream.ConsumerConfig{
		Durable: "starts", AckPolicy: jetstream.AckExplicitPolicy,
		FilterSubject: events.Event{Run: run, Type: events.RolloutStartedType, Entity: "*"}.Subject(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// purgeAndDie purges, and gives up when so many requests have been made.
func purgeAndDie(t *testing.T, log *eventlog.Log, run string, requests int) {
	t.Helper()
	ctx, die := context.WithCancel(t.Context())
	defer die()
	if requests == 0 {
		return
	}
	sub, err := log.Conn().Subscribe("$JS.API.STREAM.PURGE."+events.RunStream(run), func(*nats.Msg) {
		if requests--; requests == 0 {
			die()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	if _, err := log.Archive.PurgeEnded(ctx, run); err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
}

// restoreAndDie goes on with a restoration, and gives up at its first purge.
// It reports whether it did.
func restoreAndDie(t *testing.T, log *eventlog.Log, run string, sealed []events.SegmentSealed) (died bool) {
	t.Helper()
	ctx, die := context.WithCancel(t.Context())
	defer die()
	sub, err := log.Conn().Subscribe("$JS.API.STREAM.PURGE."+events.RunStream(run), func(*nats.Msg) { die() })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	_, err = recovery.Restore(ctx, log, run, sealed, nil)
	if err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
	return err != nil
}

// stated puts on the log how much has left the stream, once, and once more where a request
// of one who died came late.
func stated(t *testing.T, log *eventlog.Log, run string) {
	t.Helper()
	for range 3 {
		fact, err := log.Archive.PurgedFact(t.Context(), run)
		if err != nil {
			t.Fatal(err)
		}
		if fact == nil {
			return
		}
		mustAppend(t, log, *fact)
	}
	t.Fatal("it is stated again and again")
}

// TestPurgeWhatIsNotAsArchived: a segment that does not hold what the stream
// does lets nothing leave it.
func TestPurgeWhatIsNotAsArchived(t *testing.T) {
	log := natstest.Log(t)
	forgetful(t, log, "r", 1<<20)
	episodes(t, log, "r", 1, 4, 4, 48<<10)
	made, err := log.Appender.Seal(t.Context(), "r", true)
	if err != nil || len(made) != 1 {
		t.Fatalf("%+v, %v", made, err)
	}
	if err := log.Store().Delete(t.Context(), made[0].Segment.Key); err != nil {
		t.Fatal(err)
	}
	want := messages(t, log, "r")
	if n, err := log.Archive.PurgeEnded(t.Context(), "r"); err == nil || n != 0 {
		t.Errorf("%d rollouts left the stream, %v", n, err)
	}
	if got := messages(t, log, "r"); got != want {
		t.Errorf("%d messages are left of %d", got, want)
	}
}

// messages is how many messages a run's stream holds.
func messages(t *testing.T, log *eventlog.Log, run string) uint64 {
	t.Helper()
	stream, err := log.JetStream().Stream(t.Context(), events.RunStream(run))
	if err != nil {
		t.Fatal(err)
	}
	return stream.CachedInfo().State.Msgs
}

// TestRunsThatKeepAll: a run that does not forget, or is of before that, denies what would make it.
func TestRunsThatKeepAll(t *testing.T) {
	for _, keep := range []string{"", runfile.KeepAll} {
		t.Run("keep "+keep, func(t *testing.T) {
			log := natstest.Log(t)
			if err := log.Streams.EnsureRunFor(t.Context(),
				"r", runfile.Log{MaxBytes: 1 << 20, Keep: keep}); err != nil {
				t.Fatal(err)
			}
			link(t, log, "r", events.RunOpenedType, "r", events.RunOpened{})
			episodes(t, log, "r", 1, 4, 4, 48<<10)
			if _, err := log.Appender.Seal(t.Context(), "r", true); err != nil {
				t.Fatal(err)
			}
			want := messages(t, log, "r")
			if n, err := log.Archive.PurgeEnded(t.Context(), "r"); err != nil || n != 0 {
				t.Errorf("%d rollouts, %v", n, err)
			}
			stream, err := log.JetStream().Stream(t.Context(), events.RunStream("r"))
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject(events.Chain("r", "rollout", "g000001-0")),
				jetstream.WithPurgeKeep(1)); err == nil {
				t.Error("it was purged")
			}
			if got := messages(t, log, "r"); got != want {
				t.Errorf("%d messages are left of %d", got, want)
			}
		})
	}
}

// TestPurgeIsRepeated: a purge whose answer is lost is sent again, and one that gets none for long
// is an error, behind which a later call goes on.
func TestPurgeIsRepeated(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		nc, line := natstest.ConnectOver(t, natstest.Server(t))
		log, err := eventlog.New(nc, natstest.Store(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Streams.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		for run, lost := range map[string]int{"once": 1, "often": 9} {
			forgetful(t, log, run, 1<<20)
			group := episodes(t, log, run, 1, 4, 4, 48<<10)
			if _, err := log.Appender.Seal(t.Context(), run, true); err != nil {
				t.Fatal(err)
			}
			line.Lose("stream_purge_response", lost)
			n, err := log.Archive.PurgeEnded(t.Context(), run)
			if (err == nil) != (lost == 1) || lost == 1 && n != len(group) {
				t.Errorf("%s: %d of %d rollouts left the stream, %v", run, n, len(group), err)
			}
			for range 4 {
				_, err = log.Archive.PurgeEnded(t.Context(), run)
			}
			if fill, sized := log.Fill(t.Context(), run); err != nil || sized != nil || fill >= eventlog.PurgeAt {
				t.Errorf("%s: it is %.2f full, %v, %v", run, fill, err, sized)
			}
		}
	})
}
