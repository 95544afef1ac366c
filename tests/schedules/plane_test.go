// Package schedules lets trainers and feeders die at the worst moments, and counts what
// their weights are made of.
package schedules

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/querysampler"
	"github.com/rondo-rl/rondo/storage"
)

// feedName is the feed of every run that is trained on.
const feedName = "trainer"

// plane is what all runs share: a server, a store, the sampler and the advantage calculator.
type plane struct {
	log *eventlog.Log
	// blob stands for the objects that the schedules do not need.
	blob storage.Ref
}

func newPlane(t *testing.T) plane {
	t.Helper()
	p := plane{log: natstest.Log(t)}
	var err error
	if p.blob, err = storage.PutBlob(t.Context(), p.log.Store(), []byte("x")); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	for _, service := range []func(context.Context, pipeline.Env) error{querysampler.Run, advantagecalculator.Run} {
		env := p.env(t.TempDir(), "shared")
		go func() { ended <- service(ctx, env) }()
	}
	t.Cleanup(func() {
		stop()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	return p
}

func (p plane) env(dir, instance string) pipeline.Env {
	return pipeline.Env{Log: p.log, Dir: dir, Logger: slog.New(slog.DiscardHandler), Instance: instance}
}

// open opens a run as the intake does.
func (p plane) open(ctx context.Context, run string, cfg runfile.RunConfig) error {
	if err := p.log.Streams.EnsureRun(ctx, run); err != nil {
		return err
	}
	opened, err := events.New(run, events.RunOpenedType, run, "0", events.RunOpened{Config: cfg})
	if err != nil {
		return err
	}
	if _, _, err := p.log.Appender.Append(ctx, opened); err != nil {
		return err
	}
	opened.Run = events.Catalogue
	return p.last(ctx, opened)
}

// state puts a fact behind the last one of its chain.
func (p plane) state(ctx context.Context, run string, typ events.Type, entity, ordinal string, data any) error {
	fact, err := events.New(run, typ, entity, ordinal, data)
	if err != nil {
		return err
	}
	return p.last(ctx, fact)
}

func (p plane) last(ctx context.Context, fact events.Event) error {
	_, _, err := p.log.Appender.AppendLast(ctx, fact, func(*events.Event) error { return nil })
	return err
}

// errKilled is how what plays a process dies: it does nothing more, and only what is on the log, in
// the store and in its checkpoint stays.
var errKilled = errors.New("killed")
