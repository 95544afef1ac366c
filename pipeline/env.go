// Package pipeline runs services: effect services, which act on the world from durable consumers,
// and deciding services, which fold a run's stream and publish what they decide.
package pipeline

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
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/health"
	"github.com/rondo-rl/rondo/pipeline/tracing"
	"github.com/rondo-rl/rondo/retry"
)

// Env is what a service is given. It owns none of it.
type Env struct {
	Log *eventlog.Log
	// Dir holds this process's local state; it may be deleted at any moment when
	// the service does not run.
	Dir     string
	Logger  *slog.Logger
	Metrics prometheus.Registerer
	// Instance names this process among those that run the same service.
	Instance string
	// Health is told which consumers give no inputs; nil: nobody is.
	Health *health.Monitor
	// Tracing makes spans of the work; nil: there are none.
	Tracing *tracing.Tracing
}

// run is one entry of the catalogue of runs.
type run struct {
	name   string
	cfg    runfile.RunConfig
	closed bool
}

// askAgain is how long to wait after the catalogue of runs, or the leases, could not be reached.
var askAgain = retry.Policy{First: time.Second, Most: 5 * time.Second}

// watchRuns tells of every run in the catalogue until the context ends: of those that are there at
// first, once each and as they are by then, and of every opening and closing that comes. found is
// called once between the two.
func watchRuns(ctx context.Context, env Env, tell func(run), found func()) error {
	var read uint64
	known := false
	_ = askAgain.Keep(ctx, func() (bool, error) {
		err := error(nil)
		if !known {
			read, err = foundRuns(ctx, env, tell)
			if known = err == nil; known {
				found()
			}
		}
		if known {
			err = env.Log.Follow(ctx, events.Catalogue, read+1, topology.RunFilter, func(e events.Event) error {
				read = e.Seq
				if r, ok := entry(env, e); ok {
					tell(r)
				}
				return nil
			})
		}
		return ctx.Err() != nil, err
	}, func(err error, wait time.Duration) {
		env.Logger.Warn("run catalogue unavailable", "retry_in", wait, "error", err)
	})
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
			env.Logger.Error("run opening unreadable", "run", e.Entity, "error", err)
			return run{}, false
		}
		return run{name: e.Entity, cfg: opened.Config}, true
	}
	return run{}, false
}

// Runs tells a participant that is no service of the topology, such as a trainer, of every open run
// until the context ends. work is called once per run, with a context that ends with it.
func Runs(ctx context.Context, env Env, work func(ctx context.Context, run string, cfg runfile.RunConfig)) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	stops := map[string]context.CancelFunc{}
	return watchRuns(ctx, env, func(r run) {
		stop, running := stops[r.name]
		switch {
		case r.closed && running:
			stop()
			delete(stops, r.name)
		case !r.closed && !running:
			runCtx, cancel := context.WithCancel(ctx)
			stops[r.name] = cancel
			wg.Go(func() { work(runCtx, r.name, r.cfg) })
		}
	}, func() {})
}

// wish is what a handler wants done with its input.
type wish struct {
	err       error
	after     time.Duration
	permanent bool
}

func (w *wish) Error() string { return w.err.Error() }
func (w *wish) Unwrap() error { return w.err }

// RetryAfter asks for the input again after d. Events that the handler
// returned beside it are appended.
func RetryAfter(err error, d time.Duration) error {
	return &wish{err: err, after: d}
}

// NextTry is how long an input rests after a try that failed and is on the log.
var NextTry = retry.Policy{First: time.Second, Most: 30 * time.Second}

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
