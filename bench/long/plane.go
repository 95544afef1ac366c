package long

import (
	"context"
	"errors"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"time"

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

const (
	task = "long"
	feed = "trainer"
)

// bench is the plane of this process with the scripted server.
type bench struct {
	*plane.Plane
	server *scripted.Server
	url    string
}

// withPlane gives f a plane that lives as long as f runs.
func withPlane(ctx context.Context, o Options, f func(*bench) error) error {
	b := &bench{server: &scripted.Server{Tokens: o.Tokens}}
	script := httptest.NewServer(b.server)
	defer script.Close()
	b.url = script.URL + "/v1"
	return plane.With(ctx, o.Dir, services(o), func(p *plane.Plane) error {
		b.Plane = p
		return f(b)
	})
}

// services are those that a rollout passes.
func services(o Options) map[string]plane.Service {
	return map[string]plane.Service{
		"querysampler": querysampler.Run, "advantagecalculator": advantagecalculator.Run, "trainerfeeder": trainerfeeder.Run, "archiver": archiver.Run,
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

// config is a run of one group.
func (p *bench) config(ctx context.Context, o Options, turns int) (runfile.RunConfig, error) {
	cfg := runfile.DefaultRunConfig()
	cfg.Policy, cfg.Endpoint, cfg.GroupSize, cfg.Steps, cfg.MinVerifier = "bench", p.url, o.Rollouts, 1, runfile.VerifierUnguarded
	cfg.Feeds, cfg.InFlight = []runfile.Feed{{Name: feed, GroupsPerBatch: 1}}, 0
	cfg.Sampling.MaxTokens = o.Tokens
	cfg.Limits.Turns, cfg.Limits.Tokens, cfg.Limits.Timeout = turns, 1<<30, runfile.Duration(24*time.Hour)
	lines := strings.Repeat("\tfmt.Println(\"a line of a program that agents read\")\n", 80)
	snapshot, err := p.Pack(ctx, "main.go", "package main\n\nimport \"fmt\"\n\nfunc main() {\n"+lines+"}\n")
	if err != nil {
		return cfg, err
	}
	tests, err := p.Pack(ctx, "test.sh", "echo 1 > /logs/verifier/reward.txt\n")
	cfg.Tasks = []runfile.TaskSpec{{
		Name: task, Digest: "sha256:" + task, Instruction: "Read the program until you know it by heart.", Workdir: "/app", VerifierTimeout: runfile.Duration(time.Minute),
		Snapshot: snapshot, Tests: tests,
	}}
	return cfg, errors.Join(err, cfg.Validate())
}
