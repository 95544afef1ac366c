package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/storage/projection"
)

const testRun = "r"

// answerer is a decider that answers every opened group with a completion. Its answer holds the
// sequence that it was decided at, so that answers of two deciders differ. A group whose task is
// a time is answered then.
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

func (d answerer) Decide(v projection.View, asOf uint64,
	now time.Time) (facts []events.Event, wake time.Time, err error) {
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
	return Deciding{Name: topology.AdvantageCalculator,
		New: func(string, runfile.RunConfig) (map[string]Decider, error) {
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
	return Env{Log: log, Dir: natstest.Folder(t), Logger: slog.New(strict{t}), Instance: instance}
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
	if err := log.Streams.EnsureRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	opened, err := events.New(run, events.RunOpenedType, run, "0", events.RunOpened{Config: runfile.DefaultRunConfig()})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := log.Appender.Append(t.Context(), opened); err != nil {
		t.Fatal(err)
	}
	opened.Run = events.Catalogue
	if _, _, err := log.Appender.AppendLast(t.Context(), opened, func(*events.Event) error { return nil }); err != nil {
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
		if _, _, err := log.Appender.AppendLast(t.Context(), closed,
			func(*events.Event) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
}

func openGroup(t testing.TB, log *eventlog.Log, n int64, task string) events.Event {
	t.Helper()
	e, err := events.New(testRun, events.GroupOpenedType, events.GroupID(n),
		"0", events.GroupOpened{Task: task, Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	stored, _, err := log.Appender.Append(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// answer waits for a group's completion.
func answer(t testing.TB, log *eventlog.Log, n int64) (e events.Event) {
	t.Helper()
	natstest.Eventually(t, fmt.Sprintf("group %d is answered", n), func() bool {
		var err error
		if e, err = log.LastOfType(t.Context(), testRun, events.GroupCompletedType, events.GroupID(n)); err != nil &&
			!errors.Is(err, eventlog.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil
	})
	return e
}

// openProjection opens a stopped service's projection, and gives the last sequence of its run.
func openProjection(t testing.TB, env Env) (db *projection.DB, last uint64) {
	t.Helper()
	in, err := env.Log.Incarnation(t.Context(), testRun)
	if err != nil {
		t.Fatal(err)
	}
	if db, err = newLoop(env, topology.AdvantageCalculator, testRun, "", answerer{}, nil).open(in); err != nil {
		t.Fatal(err)
	}
	return db, in.LastSeq
}

// state is all that a stopped service's projection holds.
func state(t testing.TB, env Env) map[string]json.RawMessage {
	t.Helper()
	db, _ := openProjection(t, env)
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
