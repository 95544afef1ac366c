package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
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

// checkStream reads the stream and proves that no chain forks, that no event stands twice and that all that was
// acknowledged is there.
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

// write appends events to the ends of the chains. Every second one is stated by all writers alike: there
// the first one's content must count, for all of them.
func write(ctx context.Context, t *testing.T, log *eventlog.Log, writer, count, chains int, acked *acknowledged) {
	rng := rand.New(rand.NewPCG(uint64(writer), 1))
	for i := range count {
		chain := i % chains
		if chains > 1 && i%2 == 1 {
			chain = rng.IntN(chains)
		}
		ordinal := fmt.Sprintf("%d-%d", writer, i)
		if i%2 == 0 {
			ordinal = fmt.Sprintf("all-%d", i)
		}
		e := note(t, events.RolloutID("g000001", chain), ordinal, fmt.Sprintf("by %d", writer))
		stored, err := log.AppendOnce(ctx, e, time.Time{}, nil)
		if err != nil {
			t.Errorf("writer %d: %v", writer, err)
			return
		}
		acked.add(t, stored)
	}
}

func race(ctx context.Context, t *testing.T, connect func() *eventlog.Log, count, chains int) {
	log := connect()
	if err := log.EnsureRun(ctx, run); err != nil {
		t.Fatal(err)
	}
	acked := &acknowledged{events: map[uint64]events.Event{}}
	const writers = 8
	var wg sync.WaitGroup
	for w := range writers {
		log := connect()
		wg.Go(func() { write(ctx, t, log, w, count, chains, acked) })
	}
	wg.Wait()
	want := count/2 + writers*count/2
	if got := checkStream(t, log, acked); got != want && !t.Failed() {
		t.Errorf("%d events are on the log, want %d", got, want)
	}
}

func TestRacingWriters(t *testing.T) {
	t.Parallel()
	for name, chains := range map[string]int{"one chain": 1, "32 chains": 32} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := natstest.Server(t)
			store := natstest.Store(t)
			race(t.Context(), t, func() *eventlog.Log {
				log, err := eventlog.New(natstest.Connect(t, server), store)
				if err != nil {
					t.Fatal(err)
				}
				return log
			}, 24, chains)
		})
	}
}

// A leader that steps down leaves appends with an unknown outcome, and a successor that is still catching up.
func TestRacingWritersWhileLeadersChange(t *testing.T) {
	t.Parallel()
	cluster := natstest.Cluster(t, 3)
	for name, chains := range map[string]int{"one chain": 1, "32 chains": 32} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			nc := cluster.Connect(t)
			stepDowns := make(chan int, 1)
			go func() {
				n := 0
				defer func() { stepDowns <- n }()
				for ctx.Err() == nil {
					if cluster.StepDown(ctx, nc, events.RunStream(run)) {
						n++
					}
					time.Sleep(20 * time.Millisecond)
				}
			}()
			race(t.Context(), t, func() *eventlog.Log { return cluster.Log(t) }, 32, chains)
			stop()
			if n := <-stepDowns; n == 0 {
				t.Error("no leader ever stepped down: nothing was tested")
			} else {
				t.Logf("%d leaders stepped down", n)
			}
			if err := cluster.Log(t).DeleteRun(t.Context(), run); err != nil && !errors.Is(err, eventlog.ErrNotFound) {
				t.Fatal(err)
			}
		})
	}
}
