package eventlog_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
)

const run = "race"

// note makes a small event of a rollout.
func note(t testing.TB, rollout, ordinal, text string) events.Event {
	t.Helper()
	e, err := events.New(run, events.RolloutAnnotatedType, rollout, ordinal, events.RolloutAnnotated{Text: text})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// acknowledged collects what writers were told to be on the log.
type acknowledged struct {
	mu     sync.Mutex
	events map[uint64]events.Event
}

func (a *acknowledged) add(t testing.TB, e events.Event) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if other, ok := a.events[e.Seq]; ok && other.ID != e.ID {
		t.Errorf("sequence %d was acknowledged for %s and for %s", e.Seq, e.ID, other.ID)
	}
	a.events[e.Seq] = e
}

func (a *acknowledged) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.events)
}

// checkStream reads the stream and proves that no chain forks, that no event stands twice and that
// all that was acknowledged is there.
func checkStream(t *testing.T, log *eventlog.Log, acked *acknowledged) (count int) {
	t.Helper()
	tails, ids := map[string]uint64{}, map[string]uint64{}
	for e, err := range log.All(t.Context(), run, 1) {
		if err != nil {
			t.Fatal(err)
		}
		count++
		if tail := tails[e.Chain()]; e.Prev != tail {
			t.Errorf("fork: %s at %d follows %d, and the chain ends at %d", e.ID, e.Seq, e.Prev, tail)
		}
		if seq, ok := ids[e.ID]; ok {
			t.Errorf("%s stands at %d and at %d", e.ID, seq, e.Seq)
		}
		tails[e.Chain()], ids[e.ID] = e.Seq, e.Seq
		if want, ok := acked.events[e.Seq]; ok {
			if want.ID != e.ID || want.Prev != e.Prev || string(want.Data) != string(e.Data) {
				t.Errorf("sequence %d was acknowledged as %s behind %d: %s; the log holds %s behind %d: %s",
					e.Seq, want.ID, want.Prev, want.Data, e.ID, e.Prev, e.Data)
			}
			delete(acked.events, e.Seq)
		}
	}
	for seq, e := range acked.events {
		t.Errorf("%s was acknowledged at %d and is not on the log", e.ID, seq)
	}
	return count
}

// write appends events to the ends of the chains. Every second one is stated by all writers alike:
// there the first one's content must count, for all of them.
func write(ctx context.Context, t *testing.T, log *eventlog.Log, writer, from, to, chains int, acked *acknowledged) {
	rng := rand.New(rand.NewPCG(uint64(writer), uint64(from)))
	for i := from; i < to; i++ {
		chain := i % chains
		if chains > 1 && i%2 == 1 {
			chain = rng.IntN(chains)
		}
		ordinal := fmt.Sprintf("%d-%d", writer, i)
		if i%2 == 0 {
			ordinal = fmt.Sprintf("all-%d", i)
		}
		e := note(t, events.RolloutID("g000001", chain), ordinal, fmt.Sprintf("by %d", writer))
		stored, err := log.Appender.AppendOnce(ctx, e, time.Time{}, nil)
		if err != nil {
			t.Errorf("writer %d: %v", writer, err)
			return
		}
		acked.add(t, stored)
	}
}

// race lets writers write in rounds until enough has happened, and checks what came of it.
func race(t *testing.T, connect func() *eventlog.Log, count, chains int, enough func() bool) {
	log := connect()
	if err := log.Streams.EnsureRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	acked := &acknowledged{events: map[uint64]events.Event{}}
	const writers = 8
	var wg sync.WaitGroup
	for w := range writers {
		log := connect()
		wg.Go(func() {
			for round := 0; round == 0 || !enough() && !t.Failed(); round++ {
				write(t.Context(), t, log, w, round*count, (round+1)*count, chains, acked)
			}
		})
	}
	wg.Wait()
	want := acked.count()
	if got := checkStream(t, log, acked); got != want {
		t.Errorf("%d events are on the log, and %d were acknowledged", got, want)
	}
	if want < count/2+writers*count/2 {
		t.Errorf("only %d events were written", want)
	}
}

func TestRacingWriters(t *testing.T) {
	t.Parallel()
	for name, chains := range map[string]int{"one chain": 1, "32 chains": 32} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := natstest.Server(t)
			store := natstest.Store(t)
			race(t, func() *eventlog.Log {
				log, err := eventlog.New(natstest.Connect(t, server), store)
				if err != nil {
					t.Fatal(err)
				}
				return log
			}, 24, chains, func() bool { return true })
		})
	}
}

// A leader that steps down leaves appends with an unknown outcome, and a successor
// that is still catching up.
func TestRacingWritersWhileLeadersChange(t *testing.T) {
	t.Parallel()
	cluster := natstest.Cluster(t, 3)
	if err := cluster.Log(t).Streams.Ensure(t.Context()); err != nil { // as in TestRememberedEventsOfAnotherStream
		t.Fatal(err)
	}
	for name, chains := range map[string]int{"one chain": 1, "32 chains": 32} {
		t.Run(name, func(t *testing.T) {
			const enough = 6
			var stepDowns atomic.Int64
			ctx, stop := context.WithCancel(t.Context())
			nc := cluster.Connect(t)
			var wg sync.WaitGroup
			wg.Go(func() {
				for ctx.Err() == nil && stepDowns.Load() < enough {
					if cluster.StepDown(ctx, nc, events.RunStream(run)) {
						stepDowns.Add(1)
					}
					// Not to wait for anything: a cluster whose leaders only
					// change does nothing else.
					time.Sleep(50 * time.Millisecond)
				}
			})
			race(t, func() *eventlog.Log { return cluster.Log(t) }, 16, chains,
				func() bool { return stepDowns.Load() >= enough })
			stop()
			wg.Wait()
			if err := cluster.Log(t).Streams.DeleteRun(t.Context(), run); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A server that dies takes a leader, connections and readers' consumers with it.
func TestServerOfClusterDies(t *testing.T) {
	t.Parallel()
	cluster := natstest.Cluster(t, 3)
	log := cluster.Log(t)
	if err := log.Streams.EnsureRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	out, _ := follow(t.Context(), cluster.Log(t), 1, "")
	acked := &acknowledged{events: map[uint64]events.Event{}}
	var died atomic.Bool
	var wg sync.WaitGroup
	for w := range 4 {
		log := cluster.Log(t)
		wg.Go(func() {
			for round := 0; !died.Load() || round == 0; round++ {
				write(t.Context(), t, log, w, round*8, (round+1)*8, 8, acked)
			}
			write(t.Context(), t, log, w, 1_000_000, 1_000_008, 8, acked) // after the death
		})
	}
	natstest.Eventually(t, "something is written", func() bool { return acked.count() > 10 })
	leader := cluster.Leader(events.RunStream(run))
	cluster.Stop(max(leader, 0))
	died.Store(true)
	wg.Wait()
	cluster.Start(t, max(leader, 0))
	want := acked.count()
	if got := checkStream(t, log, acked); got != want {
		t.Errorf("%d events are on the log, and %d were acknowledged", got, want)
	}
	in, err := log.Incarnation(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	expectSequences(t, out, 1, in.LastSeq)
}
