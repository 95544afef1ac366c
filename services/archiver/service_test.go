package archiver

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
)

// TestClosedRun: a closed run is sealed when it has come to rest, not before, and once.
func TestClosedRun(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		if err := log.EnsureRun(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- Run(ctx, pipeline.Env{Log: log, Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Instance: "a"})
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

// state puts a fact about a run on a log.
func state(t *testing.T, log *eventlog.Log, on string, typ events.Type, prev uint64) uint64 {
	t.Helper()
	e, err := events.New(on, typ, "r", "0", events.RunOpened{Config: runfile.DefaultRunConfig()})
	if err != nil {
		t.Fatal(err)
	}
	e.Prev = prev
	stored, _, err := log.Append(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return stored.Seq
}
