package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/storage/projection"
)

const testRun = "r"

// answerer is a decider that answers every opened group with a completion. Its answer holds the sequence that it
// was decided at, so that answers of two deciders differ. A group whose task is a time is answered then.
type answerer struct {
	estimator string
	applied   *atomic.Int64
}

func (d answerer) Apply(tx *projection.Tx, e events.Event) error {
	if d.applied != nil {
		d.applied.Add(1)
	}
	last, _, err := projection.Get[uint64](tx, "last")
	if err != nil {
		return err
	}
	if e.Seq != last+1 {
		return fmt.Errorf("folded %d after %d", e.Seq, last)
	}
	if err := projection.Put(tx, "last", e.Seq); err != nil {
		return err
	}
	switch e.Type {
	case events.GroupOpenedType:
		opened, err := events.Data[events.GroupOpened](e)
		if err != nil {
			return err
		}
		return projection.Put(tx, "open/"+e.Entity, [2]string{e.Entity, opened.Task})
	case events.GroupCompletedType:
		return tx.Delete("open/" + e.Entity)
	}
	return nil
}

func (d answerer) Decide(v projection.View, asOf uint64, now time.Time) (facts []events.Event, wake time.Time, err error) {
	for open, err := range projection.Scan[[2]string](v, "open/") {
		if err != nil {
			return nil, wake, err
		}
		if at, err := time.Parse(time.RFC3339Nano, open[1]); err == nil && at.After(now) {
			if wake.IsZero() || at.Before(wake) {
				wake = at
			}
			continue
		}
		fact, err := events.New(testRun, events.GroupCompletedType, open[0], "0",
			events.GroupCompleted{Task: open[1], Estimator: d.estimator, Mean: float64(asOf)})
		if err != nil {
			return nil, wake, err
		}
		facts = append(facts, fact)
	}
	return facts, wake, nil
}

// answering is the deciding service of answerers.
func answering(d answerer) Deciding {
	return Deciding{Name: events.AdvantageCalculator, New: func(string, events.RunConfig) (map[string]Decider, error) {
		return map[string]Decider{"": d}, nil
	}}
}

// strict is a logger that lets a test fail on every warning.
type strict struct{ t testing.TB }

func (s strict) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (s strict) WithAttrs([]slog.Attr) slog.Handler           { return s }
func (s strict) WithGroup(string) slog.Handler                { return s }
func (s strict) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	s.t.Errorf("logged: %s", text)
	return nil
}

func testEnv(t testing.TB, log *eventlog.Log, instance string) Env {
	return Env{Log: log, Dir: t.TempDir(), Logger: slog.New(strict{t}), Instance: instance}
}

// service is a service that works beside the test.
type service struct {
	stop context.CancelFunc
	done chan error
}

func begin(t testing.TB, run func(ctx context.Context) error) *service {
	ctx, stop := context.WithCancel(context.Background())
	s := &service{stop: stop, done: make(chan error, 1)}
	go func() { s.done <- run(ctx) }()
	t.Cleanup(func() { s.end(t) })
	return s
}

// end stops the service and waits for it.
func (s *service) end(t testing.TB) {
	t.Helper()
	if s.done == nil {
		return
	}
	s.stop()
	if err := <-s.done; err != nil {
		t.Errorf("the service ended with %v", err)
	}
	s.done = nil
}

func deciding(t testing.TB, env Env, d Deciding) *service {
	return begin(t, func(ctx context.Context) error { return RunDeciding(ctx, env, d) })
}

// openRun makes a run as the intake does.
func openRun(t testing.TB, log *eventlog.Log, run string) {
	t.Helper()
	if err := log.EnsureRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	opened, err := events.New(run, events.RunOpenedType, run, "0", events.RunOpened{Config: events.DefaultRunConfig()})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := log.Append(t.Context(), opened); err != nil {
		t.Fatal(err)
	}
	opened.Run = events.Catalogue
	if _, _, err := log.AppendLast(t.Context(), opened, func(*events.Event) error { return nil }); err != nil {
		t.Fatal(err)
	}
}

// closeRun closes a run, and says so in the catalogue.
func closeRun(t testing.TB, log *eventlog.Log, run string) {
	t.Helper()
	closed, err := events.New(run, events.RunClosedType, run, "0", events.RunClosed{})
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{run, events.Catalogue} {
		closed.Run = of
		if _, _, err := log.AppendLast(t.Context(), closed, func(*events.Event) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
}

func openGroup(t testing.TB, log *eventlog.Log, n int64, task string) events.Event {
	t.Helper()
	e, err := events.New(testRun, events.GroupOpenedType, events.GroupID(n), "0", events.GroupOpened{Task: task, Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	stored, _, err := log.Append(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// answer waits for a group's completion.
func answer(t testing.TB, log *eventlog.Log, n int64) events.Event {
	t.Helper()
	pause := time.Millisecond
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); pause = min(2*pause, 100*time.Millisecond) {
		e, err := log.LastOfType(t.Context(), testRun, events.GroupCompletedType, events.GroupID(n))
		if err == nil {
			return e
		}
		if !errors.Is(err, eventlog.ErrNotFound) {
			t.Fatal(err)
		}
		time.Sleep(pause)
	}
	t.Fatalf("group %d is not answered", n)
	return events.Event{}
}

// state is all that a stopped service's projection holds.
func state(t testing.TB, env Env) map[string]json.RawMessage {
	t.Helper()
	l := newLoop(env, events.AdvantageCalculator, testRun, "", answerer{}, nil)
	in, err := env.Log.Incarnation(t.Context(), testRun)
	if err != nil {
		t.Fatal(err)
	}
	db, err := l.open(in)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	all := map[string]json.RawMessage{"seq": json.RawMessage(fmt.Sprint(db.Seq()))}
	for _, prefix := range []string{"last", "open/", tailPrefix, closedKey} {
		n := 0
		for value, err := range projection.Scan[json.RawMessage](db, prefix) {
			if err != nil {
				t.Fatal(err)
			}
			all[fmt.Sprintf("%s %d", prefix, n)] = slices.Clone(value)
			n++
		}
	}
	return all
}

func TestRestartContinues(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		openRun(t, log, testRun)
		env := testEnv(t, log, "a")
		var applied atomic.Int64
		d := answering(answerer{applied: &applied})

		for round := range int64(3) {
			before := applied.Load()
			began, err := log.Incarnation(t.Context(), testRun)
			if err != nil {
				t.Fatal(err)
			}
			openGroup(t, log, 2*round+1, "while it does not work")
			s := deciding(t, env, d)
			answer(t, log, 2*round+1)
			openGroup(t, log, 2*round+2, "while it works")
			answer(t, log, 2*round+2)
			synctest.Wait() // until it has folded its own answer
			s.end(t)
			want := int64(4)
			if round == 0 {
				want += int64(began.LastSeq)
			}
			if got := applied.Load() - before; got != want {
				t.Errorf("round %d folded %d events, want the %d new ones", round, got, want)
			}
		}
		kept := state(t, env)
		if err := os.RemoveAll(env.Dir); err != nil {
			t.Fatal(err)
		}
		before := applied.Load()
		s := deciding(t, env, d)
		synctest.Wait()
		s.end(t)
		if got := applied.Load() - before; got != 13 {
			t.Errorf("after its state was deleted it folded %d events, want all 13", got)
		}
		if rebuilt := state(t, env); !reflect.DeepEqual(kept, rebuilt) {
			t.Errorf("rebuilt state differs\nkept:    %s\nrebuilt: %s", kept, rebuilt)
		}
		if n := checkAnswers(t, log); n != 6 {
			t.Errorf("%d answers, want 6", n)
		}
	})
}

// checkAnswers reads the run: no chain forks, every group is answered at most once.
func checkAnswers(t testing.TB, log *eventlog.Log) (answers int) {
	t.Helper()
	tails, seen := map[string]uint64{}, map[string]bool{}
	for e, err := range log.All(t.Context(), testRun, 1) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Prev != tails[e.Chain()] {
			t.Errorf("fork: %s at %d follows %d, and the chain ends at %d", e.ID, e.Seq, e.Prev, tails[e.Chain()])
		}
		tails[e.Chain()] = e.Seq
		if seen[e.ID] {
			t.Errorf("%s stands twice", e.ID)
		}
		seen[e.ID] = true
		if e.Type == events.GroupCompletedType {
			answers++
			if e.AsOf >= e.Seq || e.DecidedAt.IsZero() || e.Source != events.AdvantageCalculator {
				t.Errorf("%s at %d: as of %d, decided at %s by %q", e.ID, e.Seq, e.AsOf, e.DecidedAt, e.Source)
			}
		}
	}
	return answers
}

func TestStreamMadeAgain(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		openRun(t, log, testRun)
		env := testEnv(t, log, "a")
		env.Logger = slog.New(slog.DiscardHandler) // it says that the run is gone
		deciding(t, env, answering(answerer{}))
		for n := range int64(5) {
			openGroup(t, log, n+1, "of the first stream")
		}
		answer(t, log, 5)
		if err := log.DeleteRun(t.Context(), testRun); err != nil {
			t.Fatal(err)
		}
		openRun(t, log, testRun)
		openGroup(t, log, 1, "of the second stream")
		if e := answer(t, log, 1); e.AsOf != 2 {
			t.Errorf("answered as of %d, want 2: the state holds another stream's events", e.AsOf)
		}
		if n := checkAnswers(t, log); n != 1 {
			t.Errorf("%d answers, want 1", n)
		}
	})
}

func TestWakesAtTheTime(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		openRun(t, log, testRun)
		deciding(t, testEnv(t, log, "a"), answering(answerer{}))
		start := time.Now()
		for n, after := range []time.Duration{40 * time.Minute, 5 * time.Minute, time.Hour} {
			openGroup(t, log, int64(n+1), start.Add(after).Format(time.RFC3339Nano))
		}
		time.Sleep(61 * time.Minute)
		synctest.Wait()
		for n, after := range []time.Duration{40 * time.Minute, 5 * time.Minute, time.Hour} {
			e := answer(t, log, int64(n+1))
			if late := e.DecidedAt.Sub(start) - after; late < 0 || late > 10*time.Millisecond {
				t.Errorf("group %d was answered %s late", n+1, late)
			}
		}
	})
}

// The standby takes over when the active one dies without a word, within the lease's time.
func TestStandbyTakesOver(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		server, store := natstest.Server(t), natstest.Store(t)
		nc, line := natstest.ConnectOver(t, server)
		dying, err := eventlog.New(nc, store)
		if err != nil {
			t.Fatal(err)
		}
		log, err := eventlog.New(natstest.Connect(t, server), store)
		if err != nil {
			t.Fatal(err)
		}
		if err := log.EnsureStreams(t.Context()); err != nil {
			t.Fatal(err)
		}
		openRun(t, log, testRun)
		env := testEnv(t, dying, "active")
		env.Logger = slog.New(slog.DiscardHandler)
		deciding(t, env, answering(answerer{estimator: "active"}))
		synctest.Wait()
		deciding(t, testEnv(t, log, "standby"), answering(answerer{estimator: "standby"}))
		by := func(n int64) string {
			completed, err := events.Data[events.GroupCompleted](answer(t, log, n))
			if err != nil {
				t.Fatal(err)
			}
			return completed.Estimator
		}
		openGroup(t, log, 1, "both live")
		if who := by(1); who != "active" {
			t.Errorf("while both live, the %s one decides", who)
		}
		line.Cut()
		began := time.Now()
		openGroup(t, log, 2, "one is dead")
		if who := by(2); who != "standby" {
			t.Errorf("after the active one's death, the %s one decides", who)
		}
		if took := time.Since(began); took > leaseTTL+2*leaseRenew {
			t.Errorf("taking over took %s", took)
		}
		line.Mend() // the old one comes back and must not decide beside the new one
		for n := range int64(20) {
			openGroup(t, log, 3+n, "both live again")
			time.Sleep(time.Second)
		}
		answer(t, log, 22)
		if n := checkAnswers(t, log); n != 22 {
			t.Errorf("%d answers, want 22", n)
		}
	})
}

// A service that stops gives its lease back: the other one need not wait for it to run out.
func TestLeaseIsHandedOver(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		openRun(t, log, testRun)
		first := deciding(t, testEnv(t, log, "first"), answering(answerer{estimator: "first"}))
		openGroup(t, log, 1, "")
		answer(t, log, 1)
		deciding(t, testEnv(t, log, "second"), answering(answerer{estimator: "second"}))
		synctest.Wait()
		first.end(t)
		began := time.Now()
		openGroup(t, log, 2, "")
		answer(t, log, 2)
		if took := time.Since(began); took > 2*leaseRenew {
			t.Errorf("the hand-over took %s", took)
		}
	})
}

// The bucket lives in memory: a server that restarts alone has lost it.
func TestLeaseBucketIsLost(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		openRun(t, log, testRun)
		deciding(t, testEnv(t, log, "a"), answering(answerer{}))
		openGroup(t, log, 1, "")
		answer(t, log, 1)
		if err := log.JetStream().DeleteKeyValue(t.Context(), events.LeaseBucket); err != nil {
			t.Fatal(err)
		}
		time.Sleep(leaseTTL + leaseRenew) // the last claim has run out
		openGroup(t, log, 2, "")
		began := time.Now()
		answer(t, log, 2)
		if took := time.Since(began); took > 2*leaseRenew {
			t.Errorf("a decision came after %s only", took)
		}
	})
}

// Two deciders that both believe to hold the lease, which is only there to save work.
func TestTwoActives(t *testing.T) {
	server, store := natstest.Server(t), natstest.Store(t)
	connect := func() *eventlog.Log {
		log, err := eventlog.New(natstest.Connect(t, server), store)
		if err != nil {
			t.Fatal(err)
		}
		return log
	}
	log := connect()
	if err := log.EnsureStreams(t.Context()); err != nil {
		t.Fatal(err)
	}
	openRun(t, log, testRun)
	for _, name := range []string{"a", "b", "c"} {
		// Each has a bucket of its own, so each is alone.
		bucket, err := log.JetStream().CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "own_" + name, Storage: jetstream.MemoryStorage})
		if err != nil {
			t.Fatal(err)
		}
		env := testEnv(t, connect(), name)
		l := newLoop(env, events.AdvantageCalculator, testRun, "", answerer{estimator: name}, &leases{bucket: bucket, instance: name})
		begin(t, func(ctx context.Context) error {
			if err := l.keep(ctx); !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		})
	}
	const groups = 150
	for n := range int64(groups) {
		openGroup(t, log, n+1, "whose is it?")
	}
	for n := range int64(groups) {
		answer(t, log, n+1)
	}
	if n := checkAnswers(t, log); n != groups {
		t.Errorf("%d answers, want %d", n, groups)
	}
	who := map[string]int{}
	for e, err := range log.All(t.Context(), testRun, 1) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == events.GroupCompletedType {
			completed, err := events.Data[events.GroupCompleted](e)
			if err != nil {
				t.Fatal(err)
			}
			who[completed.Estimator]++
		}
	}
	t.Logf("answers by: %v", who)
}

// heldSession is a session whose lease is held, with all of the run folded and nothing running beside it.
func heldSession(t *testing.T, log *eventlog.Log, d Decider) *session {
	t.Helper()
	in, err := log.Incarnation(t.Context(), testRun)
	if err != nil {
		t.Fatal(err)
	}
	l := newLoop(testEnv(t, log, "a"), events.AdvantageCalculator, testRun, "", d, nil)
	db, err := l.open(in)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s := &session{loop: l, db: db, lease: &lease{until: time.Now().Add(time.Hour)}, target: in.LastSeq}
	for e, err := range log.All(t.Context(), testRun, 1) {
		if err := s.fold(arrival{e, err}, nil); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// What follows from a decision that somebody else made differently must not be stated.
func TestAdoptedFactWithAnotherContent(t *testing.T) {
	for name, winner := range map[string]events.Event{
		"the same fact":    must(events.New(testRun, events.GroupCompletedType, events.GroupID(1), "0", events.GroupCompleted{Estimator: "theirs"})),
		"a different fact": must(events.New(testRun, events.GroupDroppedType, events.GroupID(1), "x", events.GroupDropped{})),
	} {
		t.Run(name, func(t *testing.T) {
			log := natstest.Log(t)
			openRun(t, log, testRun)
			for n := range int64(3) {
				openGroup(t, log, n+1, "")
			}
			s := heldSession(t, log, answerer{estimator: "mine"})
			winner.Prev = 2
			stored, _, err := log.Append(t.Context(), winner)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.decide(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := lastSeq(t, log); n != stored.Seq {
				t.Errorf("%d events were stated beside what somebody else decided", n-stored.Seq)
			}
			if err := s.decide(t.Context()); err != nil || lastSeq(t, log) != stored.Seq {
				t.Errorf("it decides again before it has folded the other's fact, %v", err)
			}
			if err := s.fold(arrival{event: stored}, nil); err != nil {
				t.Fatal(err)
			}
			if err := s.decide(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := lastSeq(t, log) - stored.Seq; n < 2 {
				t.Errorf("it states %d facts after it has folded the other's", n)
			}
		})
	}
}

func must(e events.Event, err error) events.Event {
	if err != nil {
		panic(err)
	}
	return e
}

func lastSeq(t testing.TB, log *eventlog.Log) uint64 {
	t.Helper()
	in, err := log.Incarnation(t.Context(), testRun)
	if err != nil {
		t.Fatal(err)
	}
	return in.LastSeq
}

func TestClosedRunIsLeft(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		openRun(t, log, testRun)
		var applied atomic.Int64
		env := testEnv(t, log, "a")
		d := answering(answerer{applied: &applied})
		s := deciding(t, env, d)
		openGroup(t, log, 1, "before")
		answer(t, log, 1)
		closeRun(t, log, testRun)
		openGroup(t, log, 2, "what was in work when it was closed")
		answer(t, log, 2)
		time.Sleep(2 * restAfter)
		synctest.Wait()
		before := applied.Load()
		openGroup(t, log, 3, "long after")
		time.Sleep(time.Hour)
		synctest.Wait()
		if applied.Load() != before {
			t.Error("a closed run at rest is still followed")
		}
		s.end(t)
		// A closed run is looked at again by a service that starts: it may have died before it had finished.
		deciding(t, env, d)
		answer(t, log, 3)
	})
}

// A decider that panics or fails is begun again; the others go on.
func TestDeciderFails(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		openRun(t, log, testRun)
		var logged strings.Builder
		env := testEnv(t, log, "a")
		env.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelWarn}))
		var failures atomic.Int64
		s := deciding(t, env, Deciding{Name: events.AdvantageCalculator, New: func(string, events.RunConfig) (map[string]Decider, error) {
			return map[string]Decider{"good": answerer{}, "bad": failing{&failures}}, nil
		}})
		openGroup(t, log, 1, "")
		answer(t, log, 1)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := failures.Load(); n < 5 || n > 50 {
			t.Errorf("the failing decider was begun %d times in five minutes", n)
		}
		openGroup(t, log, 2, "")
		answer(t, log, 2)
		s.end(t)
		if !strings.Contains(logged.String(), "advantagecalculator/bad panicked: it is Tuesday") {
			t.Errorf("the log does not say why: %s", logged.String())
		}
	})
}

type failing struct{ failures *atomic.Int64 }

func (f failing) Apply(*projection.Tx, events.Event) error {
	f.failures.Add(1)
	panic("it is Tuesday")
}

func (f failing) Decide(projection.View, uint64, time.Time) ([]events.Event, time.Time, error) {
	return nil, time.Time{}, nil
}

// damaged finds its state damaged at one event, once.
type damaged struct {
	answerer
	found *atomic.Bool
}

func (d damaged) Apply(tx *projection.Tx, e events.Event) error {
	if e.Seq == 3 && !d.found.Swap(true) {
		return fmt.Errorf("read a block: %w", pebble.ErrCorruption)
	}
	return d.answerer.Apply(tx, e)
}

func TestDamagedStateIsRebuilt(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		openRun(t, log, testRun)
		env := testEnv(t, log, "a")
		env.Logger = slog.New(slog.DiscardHandler)
		var applied atomic.Int64
		var found atomic.Bool
		deciding(t, env, Deciding{Name: events.AdvantageCalculator, New: func(string, events.RunConfig) (map[string]Decider, error) {
			return map[string]Decider{"": damaged{answerer{applied: &applied}, &found}}, nil
		}})
		openGroup(t, log, 1, "") // its answer has sequence 3
		answer(t, log, 1)
		openGroup(t, log, 2, "")
		answer(t, log, 2)
		synctest.Wait()
		if n := applied.Load(); !found.Load() || n != 2+5 {
			t.Errorf("it folded %d events, want 2 before the damage and all 5 after it", n)
		}
	})
}

// What a process keeps of a run goes when the run is deleted.
func TestDeletedRunLeavesNothing(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		openRun(t, log, testRun)
		env := testEnv(t, log, "a")
		env.Logger = slog.New(slog.DiscardHandler)
		deciding(t, env, answering(answerer{}))
		openGroup(t, log, 1, "")
		answer(t, log, 1)
		closeRun(t, log, testRun)
		if err := log.DeleteRun(t.Context(), testRun); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if _, err := os.Stat(projectionsOf(env, testRun)); !os.IsNotExist(err) {
			t.Errorf("the projections of a deleted run: %v", err)
		}
	})
}

// A service must live with catalogues that it cannot read in full.
func TestRunWithoutOpening(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		closed := must(events.New(events.Catalogue, events.RunClosedType, "lost", "0", events.RunClosed{}))
		if _, _, err := log.Append(t.Context(), closed); err != nil {
			t.Fatal(err)
		}
		openRun(t, log, "broken")
		openRun(t, log, testRun)
		env := testEnv(t, log, "a")
		env.Logger = slog.New(slog.DiscardHandler)
		deciding(t, env, Deciding{Name: events.AdvantageCalculator, New: func(run string, cfg events.RunConfig) (map[string]Decider, error) {
			if run == "broken" {
				panic("no such feed")
			}
			return map[string]Decider{cfg.Feeds[0].Name: answerer{}}, nil
		}})
		openGroup(t, log, 1, "")
		answer(t, log, 1)
	})
}
