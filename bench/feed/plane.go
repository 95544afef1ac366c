package feed

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
)

// The run that is measured.
const (
	run  = "bench"
	feed = "trainer"
	task = "synthetic"
)

// plane is a log and a store of one turn.
type plane struct {
	log     *eventlog.Log
	server  *embedded.Server
	objects string
}

// withPlane gives f an open run on a server and a store that live as long as f runs.
func withPlane(ctx context.Context, parent string, o embedded.Options, groupsPerBatch int, f func(plane) error) error {
	files, err := os.MkdirTemp(parent, "turn-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(files)
	o.Dir = filepath.Join(files, "nats")
	server, err := embedded.Start(o)
	if err != nil {
		return err
	}
	defer server.Shutdown()
	nc, err := server.Connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	p := plane{server: server, objects: filepath.Join(files, "objects")}
	store, err := dir.Open(p.objects)
	if err != nil {
		return err
	}
	defer store.Close()
	if p.log, err = eventlog.New(nc, store); err != nil {
		return err
	}
	if err := errors.Join(p.log.Streams.Ensure(ctx), p.open(ctx, groupsPerBatch)); err != nil {
		return err
	}
	return f(p)
}

// open opens the run, as the intake does.
func (p plane) open(ctx context.Context, groupsPerBatch int) error {
	cfg := runfile.DefaultRunConfig()
	cfg.Policy, cfg.External, cfg.GroupSize = "bench", true, groupSize
	cfg.Feeds = []runfile.Feed{{Name: feed, GroupsPerBatch: groupsPerBatch}}
	if err := cfg.Validate(); err != nil {
		return err
	}
	if err := p.log.Streams.EnsureRun(ctx, run); err != nil {
		return err
	}
	for _, where := range []string{run, events.Catalogue} {
		opened, err := events.New(where, events.RunOpenedType, run, "0", events.RunOpened{Config: cfg})
		if err != nil {
			return err
		}
		if _, err := p.append(ctx, opened); err != nil {
			return err
		}
	}
	return nil
}

// append puts facts of one chain on the log, one behind the other.
func (p plane) append(ctx context.Context, facts ...events.Event) (last events.Event, err error) {
	for i, e := range facts {
		e.Source = "bench"
		if i > 0 {
			e.Prev = last.Seq
		}
		if last, _, err = p.log.Appender.Append(ctx, e); err != nil {
			return last, err
		}
	}
	return last, nil
}

// fact makes an event of the run.
func fact(t events.Type, entity, ordinal string, data any) events.Event {
	e, err := events.New(run, t, entity, ordinal, data)
	if err != nil {
		panic(err) // the payloads are the bench's own
	}
	return e
}

// withFeeder runs the trainer feeder beside f.
func (p plane) withFeeder(ctx context.Context, f func() error) error {
	state, err := os.MkdirTemp(filepath.Dir(p.objects), "state-")
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- trainerfeeder.Run(ctx, pipeline.Env{
			Log: p.log, Dir: state, Logger: slog.New(slog.NewTextHandler(os.Stderr,
				&slog.HandlerOptions{Level: slog.LevelWarn})), Metrics: prometheus.NewRegistry(), Instance: "bench",
		})
	}()
	err = f()
	stop()
	return errors.Join(err, <-ended)
}

// batches follows the feed's batches and consumes each, until it has seen n. It gives the files.
func (p plane) batches(ctx context.Context, n int) (files []storage.Ref, err error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	var done = errors.New("all are here")
	filter := events.Event{Run: run, Type: events.BatchReadyType, Entity: feed}.Subject()
	err = p.log.Follow(ctx, run, 1, filter, func(e events.Event) error {
		ready, err := events.Data[events.BatchReady](e)
		if err != nil {
			return err
		}
		files = append(files, ready.Files...)
		if len(files) == n {
			return done
		}
		consumed := fact(events.BatchConsumedType, feed, events.Ordinal(ready.Step),
			events.BatchConsumed{Step: ready.Step})
		consumed.Prev = e.Seq
		_, err = p.append(ctx, consumed)
		return err
	})
	if errors.Is(err, done) {
		err = nil
	}
	return files, err
}

// patience ends a turn in which something is stuck.
const patience = 10 * time.Minute
