package long

import (
	"context"
	"path/filepath"

	"github.com/rondo-rl/rondo/bench/plane"
	"github.com/rondo-rl/rondo/bench/scripted"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/archiver"
	"github.com/rondo-rl/rondo/services/querysampler"
	"github.com/rondo-rl/rondo/services/scorer"
	"github.com/rondo-rl/rondo/services/toolrunner"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
	"github.com/rondo-rl/rondo/tasks"
)

// bench is the plane of this process.
type bench struct{ *plane.Plane }

// withPlane gives f a plane that lives as long as f runs.
func withPlane(ctx context.Context, o Options, f func(*bench) error) error {
	return plane.With(ctx, o.Dir, &scripted.Server{Tokens: o.Tokens}, services(o),
		func(p *plane.Plane) error { return f(&bench{p}) })
}

// services are those that a rollout passes.
func services(o Options) map[string]plane.Service {
	return map[string]plane.Service{
		"querysampler": querysampler.Run, "advantagecalculator": advantagecalculator.Run,
		"trainerfeeder": trainerfeeder.Run, "archiver": archiver.Run,
		"generator": plane.Generator,
		"toolrunner": func(ctx context.Context, env pipeline.Env) error {
			return toolrunner.Run(ctx, env, toolrunner.Options{
				Slots: o.Rollouts, Pool: runfile.DefaultRunConfig().Pool, Machine: machine(o, env.Dir),
			})
		},
		"scorer": func(ctx context.Context, env pipeline.Env) error {
			return scorer.Run(ctx, env, scorer.Options{Slots: o.Rollouts, Machine: machine(o, env.Dir)})
		},
	}
}

// machine keeps what sandboxes need beside the plane.
func machine(o Options, dir string) tasks.Machine {
	return tasks.Machine{ToolchainCache: filepath.Join(dir, "toolchains"), AllowInsecure: o.AllowInsecure}
}
