// Package plane runs services in this process, on an embedded log and a store
// of files, for benchmarks.
package plane

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

	"github.com/rondo-rl/rondo/bench/scripted"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/services/generator"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
)

// syncEvery is how much of the log a power cut may take.
const syncEvery = 100 * time.Millisecond

// Service is a service of the plane.
type Service = func(context.Context, pipeline.Env) error

// Plane is a log and a store, with services at work on them, and a scripted inference server.
type Plane struct {
	Log    *eventlog.Log
	Server *scripted.Server
	URL    string // of the server
	store  *counted
	env    pipeline.Env
	opened int // runs
}

// With gives f a plane in a directory that lives as long as f runs.
func With(ctx context.Context, path string, server *scripted.Server, services map[string]Service,
	f func(*Plane) error) (err error) {
	script := httptest.NewServer(server)
	defer script.Close()
	nats, err := embedded.Start(embedded.Options{Dir: filepath.Join(path, "nats"), SyncInterval: syncEvery})
	if err != nil {
		return err
	}
	defer nats.Shutdown()
	nc, err := nats.Connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	store, err := dir.Open(filepath.Join(path, "objects"))
	if err != nil {
		return err
	}
	defer store.Close()
	p := &Plane{store: &counted{Store: store}, Server: server, URL: script.URL + "/v1"}
	if p.Log, err = eventlog.New(nc, p.store); err != nil {
		return err
	}
	if err := p.Log.Streams.Ensure(ctx); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	working, serving := errgroup.WithContext(ctx)
	p.env = pipeline.Env{
		Log: p.Log, Instance: "bench",
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	for name, service := range services {
		env := p.Env()
		env.Dir = filepath.Join(path, name)
		working.Go(func() error { return service(serving, env) })
	}
	err = f(p)
	stop()
	return errors.Join(err, working.Wait())
}

// Env is that of a service, without a folder.
func (p *Plane) Env() pipeline.Env {
	env := p.env
	env.Metrics = prometheus.NewRegistry()
	return env
}

// Servers are the inference servers of a service's runs, with the default settings.
func Servers(env pipeline.Env) (*fleet.Fleet, error) {
	opts := fleet.DefaultOptions()
	opts.Logger, opts.Metrics = env.Logger, env.Metrics
	return fleet.New(opts)
}

// Generator is the generator with its default settings.
func Generator(ctx context.Context, env pipeline.Env) error {
	servers, err := Servers(env)
	if err != nil {
		return err
	}
	return generator.Run(ctx, env, servers, generator.DefaultOptions())
}

// Open opens a run, as the intake does.
func (p *Plane) Open(ctx context.Context, cfg runfile.RunConfig) (run string, err error) {
	if err := cfg.Validate(); err != nil {
		return "", err
	}
	p.opened++
	run = fmt.Sprintf("bench-%d", p.opened)
	if err := p.Log.Streams.EnsureRunFor(ctx, run, cfg.Log); err != nil {
		return run, err
	}
	for _, where := range []string{run, events.Catalogue} {
		opened, err := events.New(where, events.RunOpenedType, run, "0", events.RunOpened{Config: cfg})
		if err != nil {
			return run, err
		}
		opened.Source = "bench"
		if _, _, err := p.Log.Appender.Append(ctx, opened); err != nil {
			return run, err
		}
	}
	return run, nil
}

// Names of a run's only feed and task, and of the task's file.
const (
	Feed     = "trainer"
	Task     = "null"
	MainFile = "main.go"
)

// MainText is the file that agents read, four lines a turn.
var MainText = "package main\n\nimport \"fmt\"\n\nfunc main() {\n" +
	strings.Repeat("\tfmt.Println(\"a line of a program that agents read\")\n", 80) + "}\n"

// Config is that of a run of one batch, so many groups of rollouts on one task,
// which all begin at once.
func (p *Plane) Config(ctx context.Context, groups, size, turns int) (runfile.RunConfig, error) {
	cfg := runfile.DefaultRunConfig()
	cfg.Policy, cfg.Endpoint, cfg.GroupSize, cfg.Steps, cfg.MinVerifier = "bench", p.URL, size, 1,
		runfile.VerifierUnguarded
	cfg.Feeds, cfg.InFlight = []runfile.Feed{{Name: Feed, GroupsPerBatch: groups}}, 0
	cfg.Sampling.MaxTokens = p.Server.Tokens
	cfg.Limits.Turns, cfg.Limits.Tokens, cfg.Limits.Timeout = turns, 1<<30, runfile.Duration(24*time.Hour)
	snapshot, err := p.pack(ctx, MainFile, MainText)
	if err != nil {
		return cfg, err
	}
	tests, err := p.pack(ctx, "test.sh", "echo 1 > /logs/verifier/reward.txt\n")
	cfg.Tasks = []runfile.TaskSpec{{
		Name: Task, Digest: NullDigest, Instruction: "Read the program.", Workdir: "/app",
		VerifierTimeout: runfile.Duration(time.Minute),
		Snapshot:        snapshot, Tests: tests,
	}}
	return cfg, err
}

// pack stores a folder of one file.
func (p *Plane) pack(ctx context.Context, name, content string) (storage.Ref, error) {
	data, err := sandbox.Pack(fstest.MapFS{name: {Data: []byte(content), Mode: 0o644}})
	if err != nil {
		return storage.Ref{}, err
	}
	return storage.PutBlob(ctx, p.Log.Store(), data)
}
