// Package servicetest runs services in tests, on a real log, and states the
// facts that they work on.
package servicetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/storage"
)

// Env is what a service is given, with a directory of its own.
func Env(t testing.TB, log *eventlog.Log) pipeline.Env {
	return pipeline.Env{
		Log: log, Dir: natstest.Folder(t), Logger: slog.New(slog.DiscardHandler),
		Metrics: prometheus.NewRegistry(), Instance: "test",
	}
}

// Start runs a service until the test ends or stop is called.
func Start(t testing.TB, run func(ctx context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the service ended: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// Config is a valid run on the named tasks, whose files are not there.
func Config(tasks ...string) runfile.RunConfig {
	cfg := runfile.DefaultRunConfig()
	cfg.Policy, cfg.Endpoint, cfg.GroupSize, cfg.MinVerifier = "small", runfile.BuiltinEndpoint, 2,
		runfile.VerifierUnguarded
	cfg.InFlight, cfg.Staleness.Max = 0, 1 // the log of a test has the facts alone that it is about
	missing := storage.Ref{Key: storage.BlobKey(fmt.Sprintf("%064d", 0)), SHA256: fmt.Sprintf("%064d", 0), Size: 1}
	for _, name := range tasks {
		cfg.Tasks = append(cfg.Tasks, runfile.TaskSpec{
			Name: name, Digest: "sha256:" + name, Instruction: "Do " + name + ".", Workdir: "/app",
			VerifierTimeout: runfile.Duration(20 * time.Second), Snapshot: missing, Tests: missing,
		})
	}
	return cfg
}

// OpenRun puts a run on the log and in the catalogue, as the intake does.
func OpenRun(t testing.TB, log *eventlog.Log, run string, cfg runfile.RunConfig) {
	t.Helper()
	if err := log.Streams.EnsureRunFor(t.Context(), run, cfg.Log); err != nil {
		t.Fatal(err)
	}
	opened := Event(t, run, events.RunOpenedType, run, "0", events.RunOpened{Config: cfg})
	Append(t, log, opened)
	opened.Run = events.Catalogue
	Append(t, log, opened)
}

// CloseRun closes a run on the log and in the catalogue.
func CloseRun(t testing.TB, log *eventlog.Log, run string) {
	t.Helper()
	closed := Event(t, run, events.RunClosedType, run, "0", events.RunClosed{})
	Append(t, log, closed)
	closed.Run = events.Catalogue
	Append(t, log, closed)
}

// StartRollout starts a rollout of a task; g000001-0 belongs to group g000001.
func StartRollout(t testing.TB, log *eventlog.Log, run, id, task string) events.Event {
	t.Helper()
	return Append(t, log, Event(t, run, events.RolloutStartedType, id, "0", events.RolloutStarted{
		Group: events.GroupOf(id), Task: task, Seed: 1, Deadline: time.Now().Add(time.Hour),
	}))
}

// Event makes an event.
func Event(t testing.TB, run string, typ events.Type, entity, ordinal string, data any) events.Event {
	t.Helper()
	e, err := events.New(run, typ, entity, ordinal, data)
	if err != nil {
		t.Fatal(err)
	}
	e.Source = "test"
	return e
}

// Append puts an event behind the last link of its chain.
func Append(t testing.TB, log *eventlog.Log, e events.Event) events.Event {
	t.Helper()
	stored, _, err := log.Appender.AppendLast(t.Context(), e, func(*events.Event) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// errEnough ends a wait.
var errEnough = errors.New("enough")

// Wait waits until n events of a type and entity ("*" is any) are on a run's
// stream, and returns them.
func Wait(t testing.TB, log *eventlog.Log, run string, typ events.Type, entity string, n int) []events.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	defer cancel()
	filter := events.Event{Run: run, Type: typ, Entity: entity}.Subject()
	if typ.Routed() {
		filter += ".*"
	}
	var found []events.Event
	err := log.Follow(ctx, run, 1, filter, func(e events.Event) error {
		if found = append(found, e); len(found) == n {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Fatalf("waited for %d × %s of %s in run %s, found %v of %v: %v", n, typ, entity, run, IDs(found),
			IDs(All(t, log, run)), err)
	}
	return found
}

// WaitData waits for the first event of a type and entity and decodes it.
func WaitData[T any](t testing.TB, log *eventlog.Log, run string, typ events.Type, entity string) T {
	t.Helper()
	return Data[T](t, Wait(t, log, run, typ, entity, 1)[0])
}

// Data decodes an event.
func Data[T any](t testing.TB, e events.Event) T {
	t.Helper()
	v, err := events.Data[T](e)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// All reads a run's stream, or the events of some types of it.
func All(t testing.TB, log *eventlog.Log, run string, types ...events.Type) []events.Event {
	t.Helper()
	var all []events.Event
	for e, err := range log.All(t.Context(), run, 1) {
		if err != nil {
			t.Fatal(err)
		}
		if len(types) == 0 || slices.Contains(types, e.Type) {
			all = append(all, e)
		}
	}
	return all
}

// IDs lists the identities of events.
func IDs(list []events.Event) []string {
	ids := make([]string, len(list))
	for i, e := range list {
		ids[i] = e.ID
	}
	return ids
}

// Blob stores an object.
func Blob(t testing.TB, store storage.Store, data []byte) storage.Ref {
	t.Helper()
	ref, err := storage.PutBlob(t.Context(), store, data)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}
