package archiver

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestClosedRun: a closed run is sealed when it has come to rest, not before, and once.
func TestClosedRun(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		if err := log.Streams.EnsureRun(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- Run(ctx, pipeline.Env{Log: log, Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler),
				Metrics: prometheus.NewRegistry(), Instance: "a"})
		}()
		var last, listed uint64
		for _, typ := range []events.Type{events.RunOpenedType, events.RunClosedType} {
			last, listed = state(t, log, "r", typ, last), state(t, log, events.Catalogue, typ, listed)
			time.Sleep(10 * time.Second)
		}
		if sealed, err := log.Segments(t.Context(), "r"); err != nil || len(sealed) != 0 {
			t.Fatalf("a run was sealed that had closed a moment ago: %v %+v", err, sealed)
		}
		time.Sleep(2 * time.Minute)
		if sealed, err := log.Segments(t.Context(), "r"); err != nil || len(sealed) != 1 || sealed[0].Last != last {
			t.Errorf("%v: %+v", err, sealed)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestConsumersOfAClosedRunGo: when a closed run is archived its consumers go, but for one that is
// used, which goes when it is not any more. Nobody makes one again.
func TestConsumersOfAClosedRunGo(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		open(t, log, "r", runfile.DefaultRunConfig())
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- Run(ctx, pipeline.Env{Log: log, Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler),
				Metrics: prometheus.NewRegistry(), Instance: "a"})
		}()
		consumers := map[events.Type]jetstream.Consumer{}
		specs := topology.ConsumersOf(topology.Scorer)
		for _, spec := range specs {
			c, err := log.Streams.EnsureConsumer(t.Context(), spec.For("r", ""), "")
			if err != nil {
				t.Fatal(err)
			}
			consumers[spec.Type] = c
		}
		servicetest.Append(t, log, servicetest.Event(t, "r", events.RolloutFinishedType, "g000001-0",
			"0", events.RolloutFinished{Task: "a"}))
		used := consumers[events.RolloutFinishedType]
		inWork, err := used.Next()
		if err != nil {
			t.Fatal(err)
		}
		names := func() (all []string) {
			stream, err := log.JetStream().Stream(t.Context(), events.RunStream("r"))
			if err != nil {
				t.Fatal(err)
			}
			list := stream.ConsumerNames(t.Context())
			for name := range list.Name() {
				all = append(all, name)
			}
			if list.Err() != nil {
				t.Fatal(list.Err())
			}
			return all
		}
		natstest.Eventually(t, "the archiver serves the run", func() bool { return len(names()) > len(specs) })
		servicetest.CloseRun(t, log, "r")
		time.Sleep(90 * time.Second)
		if left := names(); len(left) != 1 || left[0] != used.CachedInfo().Name {
			t.Errorf("of the closed run's consumers there are %v, and %s is used", left, used.CachedInfo().Name)
		}
		if err := inWork.DoubleAck(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if left := names(); len(left) > 0 {
			t.Errorf("nobody uses %v", left)
		}
		if _, err := log.Streams.EnsureConsumer(t.Context(), specs[0].For("r", ""),
			""); !errors.Is(err, eventlog.ErrClosed) {
			t.Errorf("who makes a consumer of a closed run is told %v", err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestOpenRunIsArchived: an open run is archived at its interval, with no more than one more
// segment by a second archiver, and nothing where nothing happened.
func TestOpenRunIsArchived(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		server, store := natstest.Server(t), natstest.Store(t)
		log, err := eventlog.New(natstest.Connect(t, server), store)
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Streams.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		cfg := runfile.DefaultRunConfig()
		cfg.Log.ArchiveEvery = runfile.Duration(time.Minute)
		open(t, log, "r", cfg)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		for _, instance := range []string{"a", "b"} {
			go func() {
				ended <- Run(ctx, pipeline.Env{Log: log, Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler),
					Metrics: prometheus.NewRegistry(), Instance: instance})
			}()
		}
		through := func() uint64 {
			t.Helper()
			a, err := log.Archived(t.Context(), "r")
			if err != nil {
				t.Fatal(err)
			}
			return a.Through
		}
		var last uint64
		for minute := range 20 {
			last = note(t, log, "r", minute)
			time.Sleep(time.Minute + time.Second)
			if got := through(); got != last {
				t.Fatalf("minute %d: archived through %d of %d", minute, got, last)
			}
		}
		sealed, err := log.Segments(t.Context(), "r")
		if err != nil || len(sealed) < 19 || len(sealed) > 21 {
			t.Errorf("%v: %d segments of 20 minutes", err, len(sealed))
		}
		time.Sleep(time.Hour) // in which nothing happens
		if again, err := log.Segments(t.Context(), "r"); err != nil || len(again) != len(sealed) {
			t.Errorf("%v: %d segments where there were %d", err, len(again), len(sealed))
		}
		if findings, err := log.Archive.Verify(t.Context(), "r", sealed); err != nil || len(findings) > 0 {
			t.Errorf("%v: %v", err, findings)
		}
		stop()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestDeletedRunEndsItsRounds: a run whose stream is gone is left alone,
// and others are archived on.
func TestDeletedRunEndsItsRounds(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		open(t, log, "gone", runfile.DefaultRunConfig())
		open(t, log, "r", runfile.DefaultRunConfig())
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- Run(ctx, pipeline.Env{Log: log, Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler),
				Metrics: prometheus.NewRegistry(), Instance: "a"})
		}()
		time.Sleep(time.Minute)
		if err := log.Streams.DeleteRun(t.Context(), "gone"); err != nil {
			t.Fatal(err)
		}
		last := note(t, log, "r", 0)
		time.Sleep(2 * runfile.DefaultArchiveEvery)
		if a, err := log.Archived(t.Context(), "r"); err != nil || a.Through != last {
			t.Errorf("archived through %d of %d, %v", a.Through, last, err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// open opens a run as the intake does: on its own stream, then in the catalogue.
func open(t *testing.T, log *eventlog.Log, run string, cfg runfile.RunConfig) {
	t.Helper()
	if err := log.Streams.EnsureRunFor(t.Context(), run, cfg.Log); err != nil {
		t.Fatal(err)
	}
	for _, on := range []string{run, events.Catalogue} {
		e, err := events.New(on, events.RunOpenedType, run, "0", events.RunOpened{Config: cfg})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := log.Appender.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
}

// note appends an annotation of a rollout of its own.
func note(t *testing.T, log *eventlog.Log, run string, n int) uint64 {
	t.Helper()
	e, err := events.New(run, events.RolloutAnnotatedType, events.RolloutID(events.GroupID(1), n),
		"0", events.RolloutAnnotated{Text: "so far"})
	if err != nil {
		t.Fatal(err)
	}
	stored, _, err := log.Appender.Append(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return stored.Seq
}

// state puts a fact about a run on a log.
func state(t *testing.T, log *eventlog.Log, on string, typ events.Type, prev uint64) uint64 {
	t.Helper()
	e, err := events.New(on, typ, "r", "0", events.RunOpened{Config: runfile.DefaultRunConfig()})
	if err != nil {
		t.Fatal(err)
	}
	e.Prev = prev
	stored, _, err := log.Appender.Append(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return stored.Seq
}
