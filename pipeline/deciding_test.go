package pipeline

import (
	"log/slog"
	"os"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/topology"
)

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
			if e.AsOf >= e.Seq || e.DecidedAt.IsZero() || e.Source != topology.AdvantageCalculator {
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
		if err := log.Streams.DeleteRun(t.Context(), testRun); err != nil {
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
