package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/projection"
)

// stuck fails where it is told to, as long as it is told to.
type stuck struct {
	answerer
	apply, decide, complete *atomic.Pointer[error]
}

func told(at *atomic.Pointer[error]) error {
	if at == nil {
		return nil
	}
	if err := at.Load(); err != nil {
		return *err
	}
	return nil
}

func (d stuck) Apply(tx *projection.Tx, e events.Event) error {
	return errors.Join(told(d.apply), d.answerer.Apply(tx, e))
}

func (d stuck) Decide(v projection.View, asOf uint64, now time.Time) ([]events.Event, time.Time, error) {
	if err := told(d.decide); err != nil {
		panic(err)
	}
	return d.answerer.Decide(v, asOf, now)
}

func (d stuck) Complete(_ context.Context, _ projection.View, fact events.Event) (events.Event, error) {
	return fact, told(d.complete)
}

func failsWith(err error) *atomic.Pointer[error] {
	p := &atomic.Pointer[error]{}
	p.Store(&err)
	return p
}

func decidingBy(d Decider) Deciding {
	return Deciding{Name: topology.AdvantageCalculator,
		New: func(string, runfile.RunConfig) (map[string]Decider, error) {
			return map[string]Decider{"": d}, nil
		}}
}

// pauses are those of the run, each with its reason.
func pauses(t *testing.T, log *eventlog.Log) (all []events.RunPaused) {
	t.Helper()
	last, err := log.Last(t.Context(), testRun, events.RunPausedType.Kind(), testRun)
	if err != nil {
		t.Fatal(err)
	}
	// not the whole stream, which cannot be read in every test
	chain, err := log.History(t.Context(), testRun, last.Seq)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range chain {
		if e.Type != events.RunPausedType {
			continue
		}
		paused, err := events.Data[events.RunPaused](e)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(e.Source, stuckSource+topology.AdvantageCalculator) || !e.DecidedAt.IsZero() {
			t.Errorf("%s is of %s, decided at %s", e.ID, e.Source, e.DecidedAt)
		}
		all = append(all, paused)
	}
	return all
}

// A run on which a decider keeps failing is paused once, with what failed and where.
func TestStuckRunIsPaused(t *testing.T) {
	boom := errors.New("boom")
	foreign := func(t *testing.T, log *eventlog.Log) { // what a decider wants to append to has no readable end
		if err := log.Conn().Publish(events.Event{Run: testRun, Type: events.GroupCompletedType,
			Entity: events.GroupID(1)}.Subject(), []byte("{")); err != nil {
			t.Fatal(err)
		}
	}
	lost := func(t *testing.T, log *eventlog.Log) { // a body that went to the store and is not there
		e, err := events.New(testRun, events.RolloutAnnotatedType, "g000009-0",
			"0", events.RolloutAnnotated{Text: strings.Repeat("x", events.MaxPayload)})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := log.Appender.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if err := log.Store().Delete(t.Context(), storage.BlobKey(storage.Digest(e.Data))); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		service Deciding
		plant   func(*testing.T, *eventlog.Log)
		want    []string
	}{
		"fold":   {decidingBy(stuck{apply: failsWith(boom)}), nil, []string{"fold sequence 1", "boom"}},
		"decide": {decidingBy(stuck{decide: failsWith(boom)}), nil, []string{"panicked", "boom"}},
		"complete": {decidingBy(stuck{complete: failsWith(storage.ErrCorrupt)}), nil,
			[]string{"complete r/group.g000001/completed/0", "corrupt"}},
		"made": {Deciding{Name: topology.AdvantageCalculator,
			New: func(string, runfile.RunConfig) (map[string]Decider, error) { return nil, boom }},
			nil, []string{"boom"}},
		"foreign": {decidingBy(answerer{}), foreign, []string{"group.g000001", "malformed"}},
		"lost":    {decidingBy(answerer{}), lost, []string{"sequence 3: fetch body", "not found"}},
	} {
		t.Run(name, func(t *testing.T) {
			natstest.Virtual(t, func(t *testing.T) {
				log := natstest.Log(t)
				openRun(t, log, testRun)
				openGroup(t, log, 1, "")
				if c.plant != nil {
					c.plant(t, log)
				}
				env := testEnv(t, log, "a")
				env.Logger = slog.New(slog.DiscardHandler)
				s := deciding(t, env, c.service)
				time.Sleep(20 * time.Minute)
				synctest.Wait()
				s.end(t)
				got := pauses(t, log)
				if len(got) != 1 || got[0].Class != events.PauseStuck {
					t.Fatalf("paused %+v, want once", got)
				}
				for _, want := range append(c.want, topology.AdvantageCalculator+" is stuck",
					"rondo run resume "+testRun) {
					if !strings.Contains(got[0].Reason, want) {
						t.Errorf("the reason %q does not say %q", got[0].Reason, want)
					}
				}
			})
		})
	}
}

// What strikes every run pauses none.
func TestWhatIsNoRunsFaultPausesNone(t *testing.T) {
	for name, fault := range map[string]error{
		"full disk":      fmt.Errorf("write: %w", syscall.ENOSPC),
		"damaged state":  fmt.Errorf("read: %w", pebble.ErrCorruption),
		"newer version":  fmt.Errorf("sequence 7: %w", events.ErrNewer),
		"store is away":  storage.Unavailable(t.Context(), errors.New("503 Slow Down")),
		"stream is full": fmt.Errorf("append: %w", eventlog.ErrStreamFull),
	} {
		t.Run(name, func(t *testing.T) {
			natstest.Virtual(t, func(t *testing.T) {
				log := natstest.Log(t)
				openRun(t, log, testRun)
				openGroup(t, log, 1, "")
				env := testEnv(t, log, "a")
				env.Logger = slog.New(slog.DiscardHandler)
				s := deciding(t, env, decidingBy(stuck{complete: failsWith(fault)}))
				time.Sleep(20 * time.Minute)
				s.end(t)
				if got := pauses(t, log); len(got) != 0 {
					t.Errorf("paused %+v", got)
				}
			})
		})
	}
}

// A run that is resumed goes on when what failed was seen to, and is paused again when it was not.
func TestStuckRunIsTriedAgain(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		openRun(t, log, testRun)
		openGroup(t, log, 1, "")
		env := testEnv(t, log, "a")
		env.Logger = slog.New(slog.DiscardHandler)
		d := stuck{decide: failsWith(errors.New("boom"))}
		deciding(t, env, decidingBy(d))
		resume := func(n int) {
			t.Helper()
			time.Sleep(5 * time.Minute)
			if got := pauses(t, log); len(got) != n {
				t.Fatalf("paused %d times, want %d", len(got), n)
			}
			resumed, err := events.New(testRun, events.RunResumedType, testRun, fmt.Sprint(n), events.RunResumed{})
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := log.Appender.AppendLast(t.Context(), resumed,
				func(*events.Event) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		resume(1)
		resume(2)
		d.decide.Store(nil)
		answer(t, log, 1)
		time.Sleep(5 * time.Minute)
		// the last try before it was mended may have come behind the resumption
		if got := pauses(t, log); len(got) != 2 && len(got) != 3 {
			t.Errorf("paused %d times", len(got))
		}
		// A single failure after that is none that pauses.
		before := len(pauses(t, log))
		boom := errors.New("boom")
		d.decide.Store(&boom)
		openGroup(t, log, 2, "")
		time.Sleep(4 * time.Second)
		d.decide.Store(nil)
		answer(t, log, 2)
		time.Sleep(5 * time.Minute)
		if got := pauses(t, log); len(got) != before {
			t.Errorf("a few failures have paused the run: %+v", got[before:])
		}
	})
}
