package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/agents"
	"github.com/rondo-rl/rondo/bench/plane"
	"github.com/rondo-rl/rondo/bench/scripted"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/gateway"
	"github.com/rondo-rl/rondo/services/intake"
	"github.com/rondo-rl/rondo/services/querysampler"
	"github.com/rondo-rl/rondo/services/toolrunner"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/tasks"
)

// program is the null agent in a sandbox.
const program = runfile.AgentFolder + "/agent"

// bench is a plane of this process with the scripted server.
type bench struct {
	*plane.Plane
	o      Options
	layer  layer
	files  folder // what the sandboxes have
	runner runner
}

// layer is the null agent's program, this one, as tool runners find it.
type layer struct {
	store  storage.Store
	cache  *agents.Cache
	digest string
}

// makeLayer puts this program into a layer.
func makeLayer(ctx context.Context, folder string) (l layer, err error) {
	if l.store, err = dir.Open(filepath.Join(folder, "layer")); err != nil {
		return l, err
	}
	self, err := os.Executable()
	if err != nil {
		return l, err
	}
	text, err := os.ReadFile(self)
	if err != nil {
		return l, err
	}
	files := filepath.Join(folder, "files")
	if err := errors.Join(os.Mkdir(files, 0o755), os.WriteFile(filepath.Join(files, "agent"),
		text, 0o755)); err != nil {
		return l, err
	}
	built, err := agents.Builder{Store: l.store, Scratch: folder}.Build(ctx, agents.Profile{
		Name: "null", Install: agents.Install{Files: files}, Command: []string{program, agents.Instruction},
		Check: []string{program, checked},
	})
	if err != nil {
		return l, err
	}
	l.digest = built.Digest
	l.cache, err = agents.OpenCache(filepath.Join(folder, "unpacked"), agents.CacheBytes)
	if err != nil {
		return l, err
	}
	opened, err := l.cache.Open(ctx, l.store, l.digest) // unpacked once, for all planes
	if err != nil {
		return l, err
	}
	return l, opened.Close()
}

// withPlane gives f a plane that lives as long as f runs.
func withPlane(ctx context.Context, o Options, l layer, f func(*bench) error) error {
	path, err := os.MkdirTemp(o.Dir, "plane-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(path)
	if err := os.WriteFile(filepath.Join(path, plane.MainFile), []byte(plane.MainText), 0o644); err != nil {
		return err
	}
	b := &bench{o: o, layer: l, files: folder(path)}
	server := &scripted.Server{Tokens: o.Tokens}
	server.Begin(o.Turns, nil, nil)
	return plane.With(ctx, path, server, map[string]plane.Service{
		"querysampler": querysampler.Run, "advantagecalculator": advantagecalculator.Run,
		"trainerfeeder": trainerfeeder.Run, "intake": intake.Run,
		"generator": plane.Generator, "toolrunner": b.tools, "scorer": plane.NullScorer,
	}, func(p *plane.Plane) error {
		b.Plane = p
		return f(b)
	})
}

// runner is the tool runner of a plane, which can be lost.
type runner struct {
	mu   sync.Mutex
	stop context.CancelFunc
}

// lose ends the tool runner with all that it runs; another takes its place.
func (r *runner) lose() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop()
}

// tools is the tool runner with a gateway for its agents, and another one where it is lost.
func (b *bench) tools(ctx context.Context, env pipeline.Env) error {
	opts := toolrunner.Options{
		Slots: b.o.AtOnce, Pool: runfile.DefaultRunConfig().Pool, Layers: b.layer.cache,
		Machine: tasks.Machine{ToolchainCache: filepath.Join(env.Dir, "toolchains"), AllowInsecure: b.o.AllowInsecure},
	}
	servers, err := plane.Servers(env)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		models, err := gateway.New(env, servers, gateway.DefaultOptions())
		if err != nil {
			return err
		}
		opts.Model = func(run, rollout string) toolrunner.Model { return models.Agent(run, rollout) }
		working, stop := context.WithCancel(ctx)
		b.runner.mu.Lock()
		b.runner.stop = stop
		b.runner.mu.Unlock()
		err = toolrunner.Run(working, env, opts)
		stop()
		if err != nil {
			return err
		}
	}
	return nil
}

// config is that of a run whose rollouts are all in its first batch.
func (b *bench) config(ctx context.Context, rollouts int) (runfile.RunConfig, error) {
	cfg, err := b.Config(ctx, rollouts/groupSize, groupSize, max(b.o.Turns, restartTurns+1))
	cfg.InFlight = runfile.InFlight(b.o.AtOnce)
	return cfg, err
}

// withAgent lets the null agent make a run's rollouts.
func (b *bench) withAgent(ctx context.Context, cfg *runfile.RunConfig, begin beginning) error {
	for info, err := range b.layer.store.List(ctx, agents.Prefix) { // the files are unpacked already
		var data []byte
		if err == nil {
			data, err = b.layer.store.Get(ctx, info.Key)
		}
		if err == nil {
			err = b.Log.Store().PutIfAbsent(ctx, info.Key, data)
		}
		if err != nil && !errors.Is(err, storage.ErrExists) {
			return err
		}
	}
	text, err := json.Marshal(begin)
	cfg.Agent = &runfile.Agent{
		Layer: b.layer.digest, Command: []string{program, runfile.InstructionArgument},
		Files: map[string]string{beginningFile: string(text)},
	}
	return err
}

var errDone = errors.New("done")

// until follows a run to the event at which done says so. A rollout that
// fails ends the measurement.
func (b *bench) until(ctx context.Context, run string, done func(e events.Event) (bool, error)) error {
	err := b.Log.Follow(ctx, run, 1, "", func(e events.Event) error {
		switch e.Type {
		case events.RolloutFailedType, events.RunPausedType:
			return fmt.Errorf("%s: %s", e.ID, e.Data)
		}
		over, err := done(e)
		if over {
			return errDone
		}
		return err
	})
	if errors.Is(err, errDone) {
		return nil
	}
	return err
}

// tellOf reads what an agent said at its end.
func (b *bench) tellOf(ctx context.Context, e events.Event) (t told, err error) {
	answered, err := events.Data[events.WorkspaceAnswered](e)
	if err != nil {
		return t, err
	}
	output, err := answered.Output.Get(ctx, b.Log.Store())
	if err == nil {
		err = json.Unmarshal(output, &t)
	}
	if err != nil {
		stderr, _ := answered.Errors.Get(ctx, b.Log.Store())
		return t, fmt.Errorf("the null agent of %s said %q, %q: %w", e.Entity, output, stderr, err)
	}
	return t, nil
}

// processorTime is that of this process and of the sandboxes that it has ended.
func processorTime() (all time.Duration, err error) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var used unix.Rusage
		if err := unix.Getrusage(who, &used); err != nil {
			return 0, err
		}
		all += time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	return all, nil
}

// client is one for several conversations at once.
func client(conversations int) (c *http.Client, closeIdle func()) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = conversations
	return &http.Client{Transport: transport}, transport.CloseIdleConnections
}
