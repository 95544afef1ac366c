package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/health"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/projection"
)

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
		if err := log.Streams.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		openRun(t, log, testRun)
		env, standby := testEnv(t, dying, "active"), testEnv(t, log, "standby")
		env.Logger, env.Metrics, standby.Metrics = slog.New(slog.DiscardHandler), prometheus.NewRegistry(),
			prometheus.NewRegistry()
		deciding(t, env, answering(answerer{estimator: "active"}))
		synctest.Wait()
		deciding(t, standby, answering(answerer{estimator: "standby"}))
		hold := func(when string, active, standing float64) {
			t.Helper()
			if a, s := leasesHeld(t, env), leasesHeld(t, standby); a != active || s != standing {
				t.Errorf("%s: the active one says that it holds %v leases, the standby %v", when, a, s)
			}
		}
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
		hold("while both live", 1, 0)
		line.Cut()
		began := time.Now()
		openGroup(t, log, 2, "one is dead")
		if who := by(2); who != "standby" {
			t.Errorf("after the active one's death, the %s one decides", who)
		}
		hold("after its death", 0, 1)
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

// leasesHeld is what a process says in its metrics.
func leasesHeld(t *testing.T, env Env) float64 {
	t.Helper()
	families, err := env.Metrics.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "rondo_leases_held" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatal("there is no rondo_leases_held")
	return 0
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
		if err := log.JetStream().DeleteKeyValue(t.Context(), topology.LeaseBucket); err != nil {
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
	if err := log.Streams.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	openRun(t, log, testRun)
	for _, name := range []string{"a", "b", "c"} {
		// Each has a bucket of its own, so each is alone.
		bucket, err := log.JetStream().CreateKeyValue(t.Context(),
			jetstream.KeyValueConfig{Bucket: "own_" + name, Storage: jetstream.MemoryStorage})
		if err != nil {
			t.Fatal(err)
		}
		env := testEnv(t, connect(), name)
		l := newLoop(env, topology.AdvantageCalculator, testRun, "", answerer{estimator: name},
			&leases{bucket: bucket, instance: name})
		l.left = newEnds(env, topology.AdvantageCalculator)
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

// heldSession is a session whose lease is held, with all of the run folded and
// nothing running beside it.
func heldSession(t *testing.T, log *eventlog.Log, d Decider) *session {
	t.Helper()
	in, err := log.Incarnation(t.Context(), testRun)
	if err != nil {
		t.Fatal(err)
	}
	l := newLoop(testEnv(t, log, "a"), topology.AdvantageCalculator, testRun, "", d, nil)
	db, err := l.open(in)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s := &session{loop: l, db: db, lease: &lease{until: time.Now().Add(time.Hour)},
		created: in.Created, target: in.LastSeq}
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
		"the same fact": must(events.New(testRun, events.GroupCompletedType, events.GroupID(1),
			"0", events.GroupCompleted{Estimator: "theirs"})),
		"a different fact": must(events.New(testRun, events.GroupDroppedType, events.GroupID(1),
			"x", events.GroupDropped{})),
	} {
		t.Run(name, func(t *testing.T) {
			log := natstest.Log(t)
			openRun(t, log, testRun)
			for n := range int64(3) {
				openGroup(t, log, n+1, "")
			}
			s := heldSession(t, log, answerer{estimator: "mine"})
			winner.Prev = 2
			stored, _, err := log.Appender.Append(t.Context(), winner)
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

// Who gains the lease folds first what the one before it has left.
func TestTakingOverFoldsFirst(t *testing.T) {
	log := natstest.Log(t)
	openRun(t, log, testRun)
	openGroup(t, log, 1, "")
	s := heldSession(t, log, answerer{})
	left := openGroup(t, log, 2, "")
	if err := s.takeOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.decide(t.Context()); err != nil || lastSeq(t, log) != left.Seq {
		t.Errorf("it decides on less than there is, %v", err)
	}
	if err := s.fold(arrival{event: left}, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.decide(t.Context()); err != nil || lastSeq(t, log) != left.Seq+2 {
		t.Errorf("it decides nothing on all there is, %v", err)
	}
	s.created = s.created.Add(-time.Second) // it has folded another stream of the name
	if err := s.takeOver(t.Context()); !errors.Is(err, eventlog.ErrReplaced) {
		t.Errorf("it takes over a stream that was made again: %v", err)
	}
}

// slow is stuck only after some time: a client tries for seconds before it gives up.
type slow struct{ stuck }

const slowness = 20 * time.Second

func (d slow) Apply(tx *projection.Tx, e events.Event) error {
	if told(d.apply) != nil {
		time.Sleep(slowness)
	}
	return d.stuck.Apply(tx, e)
}

func (d slow) Complete(ctx context.Context, v projection.View, fact events.Event) (events.Event, error) {
	if told(d.complete) != nil {
		time.Sleep(slowness)
	}
	return d.stuck.Complete(ctx, v, fact)
}

// TestLeaderThatCannotReadResigns: a decider that meets an event which it cannot read
// gives its lease back. It does not take the lease again, not even when nobody has it,
// until it has read the whole log.
func TestLeaderThatCannotReadResigns(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		openRun(t, log, testRun)
		old, unread := testEnv(t, log, "old"), &atomic.Pointer[error]{}
		old.Logger, old.Metrics = slog.New(slog.DiscardHandler), prometheus.NewRegistry()
		monitor, err := health.New(health.Options{Log: log.Streams, Conn: log.Conn(), Logger: old.Logger})
		if err != nil {
			t.Fatal(err)
		}
		old.Health = monitor
		deciding(t, old, decidingBy(slow{stuck{answerer: answerer{estimator: "old"}, apply: unread}}))
		openGroup(t, log, 1, "")
		answer(t, log, 1)
		newer := fmt.Errorf("group.opened: %w", events.ErrNewer)
		unread.Store(&newer)
		openGroup(t, log, 2, "")
		time.Sleep(slowness + leaseTTL)
		bucket, err := log.JetStream().KeyValue(t.Context(), topology.LeaseBucket)
		if err != nil {
			t.Fatal(err)
		}
		claims, err := bucket.WatchAll(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		claimed := func() (by []string) {
			for {
				select {
				case e := <-claims.Updates():
					if e != nil && e.Operation() == jetstream.KeyValuePut {
						by = append(by, string(e.Value()))
					}
				default:
					return by
				}
			}
		}
		time.Sleep(10 * time.Minute)
		if by := claimed(); len(by) != 0 {
			t.Errorf("who cannot read the log has taken the lease: %v", by)
		}
		outages := monitor.Ready(t.Context())
		if len(outages) != 1 || outages[0].Kind != health.CannotDecide ||
			outages[0].Of != topology.AdvantageCalculator+" of run "+testRun ||
			!strings.Contains(outages[0].Reason, "newer version") || !outages[0].Stops() {
			t.Errorf("it says of itself %+v", outages)
		}
		young := testEnv(t, log, "new")
		began := time.Now()
		service := deciding(t, young, answering(answerer{estimator: "new"}))
		answer(t, log, 2)
		if took := time.Since(began); took > leaseRenew {
			t.Errorf("who can read the log decides after %s", took)
		}
		service.end(t) // while it is away nobody decides
		openGroup(t, log, 3, "")
		time.Sleep(10 * time.Minute)
		if by := claimed(); slices.Contains(by, "old") || !slices.Contains(by, "new") {
			t.Errorf("the lease was taken by %v", by)
		}
		unread.Store(nil)
		answer(t, log, 3)
		time.Sleep(5 * time.Minute)
		if outages := monitor.Ready(t.Context()); len(outages) != 0 || leasesHeld(t, old) != 1 {
			t.Errorf("who can read the log again holds %v leases, and says %+v", leasesHeld(t, old), outages)
		}
	})
}

// TestLeaderThatCannotCompleteResigns: a decider that cannot write what it has decided, as its
// store refuses it, leaves the lease to one that can.
func TestLeaderThatCannotCompleteResigns(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		openRun(t, log, testRun)
		first, refused := testEnv(t, log, "first"), &atomic.Pointer[error]{}
		first.Logger = slog.New(slog.DiscardHandler)
		deciding(t, first, decidingBy(slow{stuck{answerer: answerer{estimator: "first"}, complete: refused}}))
		denied := storage.Unavailable(t.Context(), errors.New("403 Access Denied"))
		for n := int64(1); n < 20; n += 2 {
			openGroup(t, log, n, "")
			answer(t, log, n) // the first one has the lease
			second := deciding(t, testEnv(t, log, "second"), answering(answerer{estimator: "second"}))
			synctest.Wait()
			refused.Store(&denied)
			openGroup(t, log, n+1, "")
			began := time.Now()
			answer(t, log, n+1)
			if took := time.Since(began); took > slowness+aside {
				t.Errorf("group %d is decided after %s", n+1, took)
			}
			refused.Store(nil)
			second.end(t)
		}
	})
}
