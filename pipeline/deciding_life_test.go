package pipeline

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/storage/projection"
)

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
		if _, err := os.Stat(projectionsOf(env, testRun)); !os.IsNotExist(err) {
			t.Errorf("what was folded of a closed run at rest: %v", err)
		}
		s.end(t)
		s = deciding(t, env, d)
		time.Sleep(time.Minute)
		synctest.Wait()
		if applied.Load() != before {
			t.Error("a service that starts folds a closed run again in which nothing is left to decide")
		}
		openGroup(t, log, 3, "long after")
		time.Sleep(time.Hour)
		synctest.Wait()
		if applied.Load() != before {
			t.Error("a closed run at rest is still followed")
		}
		s.end(t)
		// A closed run is looked at again by a service that starts: it may have
		// died before it had finished.
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
		s := deciding(t, env, Deciding{Name: topology.AdvantageCalculator,
			New: func(string, runfile.RunConfig) (map[string]Decider, error) {
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
		deciding(t, env, Deciding{Name: topology.AdvantageCalculator,
			New: func(string, runfile.RunConfig) (map[string]Decider, error) {
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
		if err := log.Streams.DeleteRun(t.Context(), testRun); err != nil {
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
		if _, _, err := log.Appender.Append(t.Context(), closed); err != nil {
			t.Fatal(err)
		}
		openRun(t, log, "broken")
		openRun(t, log, testRun)
		env := testEnv(t, log, "a")
		env.Logger = slog.New(slog.DiscardHandler)
		deciding(t, env, Deciding{Name: topology.AdvantageCalculator,
			New: func(run string, cfg runfile.RunConfig) (map[string]Decider, error) {
				if run == "broken" {
					panic("no such feed")
				}
				return map[string]Decider{cfg.Feeds[0].Name: answerer{}}, nil
			}})
		openGroup(t, log, 1, "")
		answer(t, log, 1)
	})
}
