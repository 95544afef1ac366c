package long

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing/fstest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/archiver"
	"github.com/rondo-rl/rondo/services/generator"
	"github.com/rondo-rl/rondo/services/querysampler"
	"github.com/rondo-rl/rondo/services/scorer"
	"github.com/rondo-rl/rondo/services/toolrunner"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
)

const (
	task = "long"
	feed = "trainer"
)

// plane is a log, a store, the services and the scripted server.
type plane struct {
	log    *eventlog.Log
	server *server
	url    string
	opened int // runs
}

// withPlane gives f a plane that lives as long as f runs.
func withPlane(ctx context.Context, o Options, f func(*plane) error) (err error) {
	nats, err := embedded.Start(embedded.Options{Dir: filepath.Join(o.Dir, "nats"), SyncInterval: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	defer nats.Shutdown()
	nc, err := nats.Connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	store, err := dir.Open(filepath.Join(o.Dir, "objects"))
	if err != nil {
		return err
	}
	defer store.Close()
	p := &plane{server: &server{tokens: o.Tokens, asked: func(int) {}}}
	if p.log, err = eventlog.New(nc, store); err != nil {
		return err
	}
	if err := p.log.EnsureStreams(ctx); err != nil {
		return err
	}
	script := httptest.NewServer(p.server)
	defer script.Close()
	p.url = script.URL + "/v1"
	ctx, stop := context.WithCancel(ctx)
	working, serving := errgroup.WithContext(ctx)
	env := pipeline.Env{
		Log: p.log, Metrics: prometheus.NewRegistry(), Instance: "bench",
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	for name, service := range services(o) {
		env := env // each has a folder of its own
		env.Dir = filepath.Join(o.Dir, name)
		working.Go(func() error { return service(serving, env) })
	}
	err = f(p)
	stop()
	return errors.Join(err, working.Wait())
}

// services are those that a rollout passes.
func services(o Options) map[string]func(context.Context, pipeline.Env) error {
	return map[string]func(context.Context, pipeline.Env) error{
		"querysampler": querysampler.Run, "advantagecalculator": advantagecalculator.Run, "trainerfeeder": trainerfeeder.Run, "archiver": archiver.Run,
		"generator": func(ctx context.Context, env pipeline.Env) error {
			opts := fleet.DefaultOptions()
			opts.Logger, opts.Metrics = env.Logger, env.Metrics
			servers, err := fleet.New(opts)
			if err != nil {
				return err
			}
			return generator.Run(ctx, env, servers, generator.DefaultOptions())
		},
		"toolrunner": func(ctx context.Context, env pipeline.Env) error {
			return toolrunner.Run(ctx, env, toolrunner.Options{
				Slots: o.Rollouts, Pool: runfile.DefaultRunConfig().Pool, ToolchainCache: filepath.Join(env.Dir, "toolchains"), AllowInsecure: o.AllowInsecure,
			})
		},
		"scorer": func(ctx context.Context, env pipeline.Env) error {
			return scorer.Run(ctx, env, scorer.Options{Slots: o.Rollouts, ToolchainCache: filepath.Join(env.Dir, "toolchains"), AllowInsecure: o.AllowInsecure})
		},
	}
}

// config is a run of one group.
func (p *plane) config(ctx context.Context, o Options, turns int) (runfile.RunConfig, error) {
	cfg := runfile.DefaultRunConfig()
	cfg.Policy, cfg.Endpoint, cfg.GroupSize, cfg.Steps = "bench", p.url, o.Rollouts, 1
	cfg.Feeds = []runfile.Feed{{Name: feed, GroupsPerBatch: 1}}
	cfg.Sampling.MaxTokens = o.Tokens
	cfg.Limits.Turns, cfg.Limits.Tokens, cfg.Limits.Timeout = turns, 1<<30, runfile.Duration(24*time.Hour)
	lines := strings.Repeat("\tfmt.Println(\"a line of a program that agents read\")\n", 80)
	snapshot, err := p.pack(ctx, "main.go", "package main\n\nimport \"fmt\"\n\nfunc main() {\n"+lines+"}\n")
	if err != nil {
		return cfg, err
	}
	tests, err := p.pack(ctx, "test.sh", "echo 1 > /logs/verifier/reward.txt\n")
	cfg.Tasks = []runfile.TaskSpec{{
		Name: task, Digest: "sha256:" + task, Instruction: "Read the program until you know it by heart.", Workdir: "/app", VerifierTimeout: runfile.Duration(time.Minute),
		Snapshot: snapshot, Tests: tests,
	}}
	return cfg, errors.Join(err, cfg.Validate())
}

// pack stores a folder of one file.
func (p *plane) pack(ctx context.Context, name, content string) (storage.Ref, error) {
	data, err := sandbox.Pack(fstest.MapFS{name: {Data: []byte(content), Mode: 0o644}})
	if err != nil {
		return storage.Ref{}, err
	}
	return storage.PutBlob(ctx, p.log.Store(), data)
}

// open opens a run, as the intake does.
func (p *plane) open(ctx context.Context, cfg runfile.RunConfig) (run string, err error) {
	p.opened++
	run = fmt.Sprintf("bench-%d", p.opened)
	if err := p.log.EnsureRunFor(ctx, run, cfg.Log); err != nil {
		return run, err
	}
	for _, where := range []string{run, events.Catalogue} {
		opened, err := events.New(where, events.RunOpenedType, run, "0", events.RunOpened{Config: cfg})
		if err != nil {
			return run, err
		}
		opened.Source = "bench"
		if _, _, err := p.log.Append(ctx, opened); err != nil {
			return run, err
		}
	}
	return run, nil
}
