package rollouts

import (
	"context"
	"errors"
	"fmt"

	"github.com/rondo-rl/rondo/bench/plane"
	"github.com/rondo-rl/rondo/bench/scripted"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/archiver"
	"github.com/rondo-rl/rondo/services/querysampler"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
)

// bench is the plane of this process.
type bench struct {
	*plane.Plane
	o Options
}

// withPlane gives f a plane that lives as long as f runs.
func withPlane(ctx context.Context, o Options, f func(*bench) error) error {
	b := &bench{o: o}
	server := &scripted.Server{Tokens: o.Tokens}
	server.Begin(o.Turns, nil, nil)
	return plane.With(ctx, o.Dir, server, map[string]plane.Service{
		"querysampler": querysampler.Run, "advantagecalculator": advantagecalculator.Run,
		"trainerfeeder": trainerfeeder.Run, "archiver": archiver.Run,
		"generator": plane.Generator, "toolrunner": nullTools, "scorer": plane.NullScorer,
	}, func(p *plane.Plane) error {
		b.Plane = p
		return f(b)
	})
}

// shape of a run: all of its rollouts are in its first batch.
type shape struct{ group, rollouts, turns int }

// start opens a run.
func (b *bench) start(ctx context.Context, s shape) (string, error) {
	cfg, err := b.Config(ctx, s.rollouts/s.group, s.group, s.turns)
	if err != nil {
		return "", err
	}
	cfg.Log.MaxBytes = 8 << 30
	return b.Open(ctx, cfg)
}

var errDone = errors.New("done")

// until follows a run to the event at which done says so. A rollout that fails, or is tried
// again, ends the measurement.
func (b *bench) until(ctx context.Context, run string, done func(e events.Event) bool) error {
	err := b.Log.Follow(ctx, run, 1, "", func(e events.Event) error {
		switch e.Type {
		case events.RolloutFailedType, events.RunPausedType, events.RolloutRetriedType:
			return fmt.Errorf("%s: %s", e.ID, e.Data)
		}
		if done(e) {
			return errDone
		}
		return nil
	})
	if errors.Is(err, errDone) {
		return nil
	}
	return err
}
