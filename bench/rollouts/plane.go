package rollouts

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/rondo-rl/rondo/bench/plane"
	"github.com/rondo-rl/rondo/bench/scripted"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/archiver"
	"github.com/rondo-rl/rondo/services/querysampler"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
)

const feed = "trainer"

// bench is the plane of this process with the scripted server.
type bench struct {
	*plane.Plane
	o      Options
	server *scripted.Server
	url    string
}

// withPlane gives f a plane that lives as long as f runs.
func withPlane(ctx context.Context, o Options, f func(*bench) error) error {
	b := &bench{o: o, server: &scripted.Server{Tokens: o.Tokens}}
	b.server.Begin(o.Turns, nil, nil)
	script := httptest.NewServer(b.server)
	defer script.Close()
	b.url = script.URL + "/v1"
	return plane.With(ctx, o.Dir, map[string]plane.Service{
		"querysampler": querysampler.Run, "advantagecalculator": advantagecalculator.Run, "trainerfeeder": trainerfeeder.Run, "archiver": archiver.Run,
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
	cfg := runfile.DefaultRunConfig()
	cfg.Policy, cfg.Endpoint, cfg.GroupSize, cfg.Steps, cfg.MinVerifier = "bench", b.url, s.group, 1, runfile.VerifierUnguarded
	cfg.Feeds, cfg.InFlight = []runfile.Feed{{Name: feed, GroupsPerBatch: s.rollouts / s.group}}, 0 // all of them begin at once
	cfg.Sampling.MaxTokens = b.o.Tokens
	cfg.Limits.Turns, cfg.Limits.Tokens, cfg.Limits.Timeout = s.turns, 1<<30, runfile.Duration(24*time.Hour)
	cfg.Log.MaxBytes = 8 << 30
	snapshot, err := b.Pack(ctx, "main.go", "package main\n\nfunc main() {}\n")
	if err != nil {
		return "", err
	}
	tests, err := b.Pack(ctx, "test.sh", "echo 1 > /logs/verifier/reward.txt\n")
	if err != nil {
		return "", err
	}
	cfg.Tasks = []runfile.TaskSpec{{
		Name: "null", Digest: plane.NullDigest, Instruction: "Do nothing.", Workdir: "/app", VerifierTimeout: runfile.Duration(time.Minute), Snapshot: snapshot, Tests: tests,
	}}
	if err := cfg.Validate(); err != nil {
		return "", err
	}
	return b.Open(ctx, cfg)
}

var errDone = errors.New("done")

// until follows a run to the event at which done says so. A rollout that fails, or is tried again, ends the measurement.
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
