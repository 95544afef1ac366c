// Package runtime runs services: effect services, which act on the world from durable consumers, and deciding
// services, which fold a run's stream and publish what they decide.
package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// Env is what a service is given. It owns none of it.
type Env struct {
	Log *eventlog.Log
	// Dir holds this process's local state; it may be deleted at any moment when the service does not run.
	Dir     string
	Logger  *slog.Logger
	Metrics prometheus.Registerer
	// Instance names this process among those that run the same service.
	Instance string
}

// run is one entry of the catalogue of runs.
type run struct {
	name   string
	cfg    events.RunConfig
	closed bool
}

// catalogueAgainAfter is the rest after the catalogue could not be read.
const catalogueAgainAfter = time.Second

// watchRuns tells of every run in the catalogue until the context ends: of those that are there at first, once
// each and as they are by then, and of every opening and closing that comes.
func watchRuns(ctx context.Context, env Env, tell func(run)) error {
	var read uint64
	for known := false; ctx.Err() == nil; {
		err := error(nil)
		if !known {
			read, err = foundRuns(ctx, env, tell)
			known = err == nil
		}
		if known {
			err = env.Log.Follow(ctx, events.Catalogue, read+1, events.RunFilter, func(e events.Event) error {
				read = e.Seq
				if r, ok := entry(env, e); ok {
					tell(r)
				}
				return nil
			})
		}
		if ctx.Err() != nil {
			return nil
		}
		env.Logger.Warn("the catalogue of runs cannot be followed, trying again", "error", err)
		Sleep(ctx, catalogueAgainAfter)
	}
	return nil
}

// foundRuns tells of the runs that the catalogue holds, and up to which sequence it looked.
func foundRuns(ctx context.Context, env Env, tell func(run)) (read uint64, err error) {
	var order []string
	found := map[string]run{}
	for e, err := range env.Log.All(ctx, events.Catalogue, 1) {
		if err != nil {
			return 0, err
		}
		read = e.Seq
		r, ok := entry(env, e)
		if !ok {
			continue
		}
		before, known := found[r.name]
		if !known {
			order = append(order, r.name)
		}
		if r.closed {
			r.cfg = before.cfg
		}
		found[r.name] = r
	}
	for _, name := range order {
		tell(found[name])
	}
	return read, nil
}

// entry reads an opening or closing in the catalogue.
func entry(env Env, e events.Event) (r run, ok bool) {
	switch e.Type {
	case events.RunClosedType:
		return run{name: e.Entity, closed: true}, true
	case events.RunOpenedType:
		opened, err := events.Data[events.RunOpened](e)
		if err != nil {
			env.Logger.Error("a run's opening cannot be read", "run", e.Entity, "error", err)
			return run{}, false
		}
		return run{name: e.Entity, cfg: opened.Config}, true
	}
	return run{}, false
}

// Runs tells a participant that is no service of the topology, such as a trainer, of every open run until the
// context ends. work is called once per run, with a context that ends with it.
func Runs(ctx context.Context, env Env, work func(ctx context.Context, run string, cfg events.RunConfig)) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	stops := map[string]context.CancelFunc{}
	return watchRuns(ctx, env, func(r run) {
		stop, running := stops[r.name]
		switch {
		case r.closed && running:
			stop()
			stops[r.name] = func() {}
		case !r.closed && !running:
			runCtx, cancel := context.WithCancel(ctx)
			stops[r.name] = cancel
			wg.Go(func() { work(runCtx, r.name, r.cfg) })
		}
	})
}

// Sleep waits, and reports whether it was not interrupted.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// wish is what a handler wants done with its input.
type wish struct {
	err       error
	after     time.Duration
	permanent bool
}

func (w *wish) Error() string { return w.err.Error() }
func (w *wish) Unwrap() error { return w.err }

// RetryAfter asks for the input again after d. Events that the handler returned beside it are appended.
func RetryAfter(err error, d time.Duration) error {
	return &wish{err: err, after: d}
}

// Permanent gives the input up: it becomes a dead letter with the error as its reason.
func Permanent(err error) error {
	return &wish{err: err, permanent: true}
}

func wishOf(err error) (w *wish, ok bool) {
	ok = errors.As(err, &w)
	return w, ok
}

// guard turns a panic of a decider into an error that names the service.
func guard(name string, err *error) {
	switch r := recover().(type) {
	case nil:
	case error:
		*err = ofRun(fmt.Errorf("%s panicked: %w", name, r))
	default:
		*err = ofRun(fmt.Errorf("%s panicked: %v", name, r))
	}
}
