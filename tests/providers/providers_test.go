// Package providers samples runs at inference servers that speak as vLLM, SGLang and llama.cpp do,
// and that fail, limit and restart as those do in production: the runs finish, their ledgers add
// up, and no server gets more than its ramp allows.
package providers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/audit"
	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/gateway"
	"github.com/rondo-rl/rondo/services/generator"
	"github.com/rondo-rl/rondo/services/intake"
	"github.com/rondo-rl/rondo/services/querysampler"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestOneBackend: it fails half of its calls, limits the rest, and restarts cold.
// The run has no other one.
func TestOneBackend(t *testing.T) {
	for name, c := range map[string]struct {
		dialect  dialect
		textOnly bool
	}{"vllm": {vllm{}, false}, "sglang": {sglang{"0"}, false}, "llamacpp": {llamacpp{}, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, c.dialect, 8, agent, half)
			p := newPlane(t, 1, s)
			restarts := p.restart(s, 10, 30)
			p.finished()
			restarts.Wait()
			p.prove()
			for _, e := range servicetest.All(t, p.log, "r", events.RolloutFinishedType) {
				if f := servicetest.Data[events.RolloutFinished](t, e); f.Turns != 2 || f.TextOnly != c.textOnly ||
					!f.TextOnly && f.Samples != 1 {
					t.Errorf("%s finished as %+v", e.Entity, f)
				}
			}
		})
	}
}

// TestThreeBackends of one run: one as above, one that restarts twice, one that has enough to do
// with what it gets. A harness samples at the same servers through the gateway.
func TestThreeBackends(t *testing.T) {
	t.Parallel()
	bad, cold := newServer(t, vllm{}, 8, agent, half), newServer(t, llamacpp{}, 4, agent, well)
	full := newServer(t, sglang{"0"}, 6, agent, func(n int) fault {
		if n%5 == 4 {
			return busy
		}
		return none
	})
	p := newPlane(t, 2, bad, cold, full)
	first, second := p.restart(cold, 5, 12), p.restart(full, 8)
	p.harness(4)
	p.finished()
	first.Wait()
	second.Wait()
	p.prove()
	for _, s := range []*server{bad, cold, full} {
		if s.answered == 0 {
			t.Errorf("%T has answered nothing", s.dialect)
		}
	}
}

// plane is a log with the services that a run needs but for the sandboxes,
// whose part the test plays.
type plane struct {
	t       *testing.T
	log     *eventlog.Log
	servers []*server
	fleet   *fleet.Fleet
	outside *sync.WaitGroup
}

// newPlane opens an evaluation of two tasks, each tried 4 times in every group, at the servers.
func newPlane(t *testing.T, epochs int, servers ...*server) *plane {
	t.Helper()
	return newPlaneOf(t, func(c *runfile.RunConfig) {
		c.Feeds, c.Epochs, c.GroupSize, c.InFlight = nil,
			epochs, 4, 128
	}, servers...)
}

// newPlaneOf opens a run that the test configures.
func newPlaneOf(t *testing.T, change func(*runfile.RunConfig), servers ...*server) *plane {
	t.Helper()
	p := &plane{t: t, log: natstest.Log(t), servers: servers, outside: &sync.WaitGroup{}}
	p.open("r", change)
	env := servicetest.Env(t, p.log)
	p.fleet = servicetest.Fleet(t, env, nil)
	for _, run := range []func(context.Context, pipeline.Env) error{
		intake.Run, querysampler.Run, advantagecalculator.Run,
		func(ctx context.Context, env pipeline.Env) error {
			return generator.Run(ctx, env, p.fleet, generator.DefaultOptions())
		},
		p.sandboxes,
	} {
		env := servicetest.Env(t, p.log)
		servicetest.Start(t, func(ctx context.Context) error { return run(ctx, env) })
	}
	return p
}

func (p *plane) open(run string, change func(*runfile.RunConfig)) {
	p.t.Helper()
	cfg := servicetest.Config("a", "b")
	for i := range cfg.Tasks {
		cfg.Tasks[i].Snapshot = servicetest.Blob(p.t, p.log.Store(), []byte("snapshot"))
		cfg.Tasks[i].Tests = servicetest.Blob(p.t, p.log.Store(), []byte("tests"))
	}
	cfg.Endpoint, cfg.Limits.Tries, cfg.Limits.Timeout = "", 20, runfile.Duration(3*time.Minute)
	cfg.Limits.TurnTimeout.Whole = runfile.Duration(2 * time.Second)
	for _, s := range p.servers {
		cfg.Endpoints = append(cfg.Endpoints, runfile.Endpoint{URL: s.url(), Slots: s.slots})
	}
	change(&cfg)
	if err := cfg.Validate(); err != nil {
		p.t.Fatal(err)
	}
	servicetest.OpenRun(p.t, p.log, run, cfg)
}

// sandboxes answers tool calls and scores rollouts.
func (p *plane) sandboxes(ctx context.Context, _ pipeline.Env) error {
	return p.log.Follow(ctx, "r", 1, "", func(e events.Event) error {
		switch e.Type {
		case events.TurnSampledType:
			turn := servicetest.Data[events.TurnSampled](p.t, e)
			done := events.ToolsCompleted{Turn: turn.Turn, Runner: "tester", Isolation: "none", Filesystem: "copy"}
			for _, c := range turn.ToolCalls {
				done.Results = append(done.Results, events.ToolResult{CallID: c.ID, Name: c.Name, Content: "main.go"})
			}
			if len(turn.ToolCalls) > 0 && !events.External(e.Entity) {
				servicetest.Append(p.t, p.log, servicetest.Event(p.t, "r", events.ToolsCompletedType, e.Entity,
					events.Ordinal(turn.Turn), done))
			}
		case events.RolloutFinishedType:
			f := servicetest.Data[events.RolloutFinished](p.t, e)
			servicetest.Append(p.t, p.log, servicetest.Event(p.t, "r", events.RolloutScoredType, e.Entity,
				"0", events.RolloutScored{
					Reward: 1, Trajectory: f.Trajectory, TextOnly: f.TextOnly,
				}))
		}
		return nil
	})
}

// restart restarts a server when it has been asked so often.
func (p *plane) restart(s *server, when ...int) *sync.WaitGroup {
	var reached []<-chan struct{}
	for _, n := range when {
		reached = append(reached, s.after(n))
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, enough := range reached {
			select {
			case <-enough:
			case <-p.t.Context().Done():
				return
			}
			s.restart(700*time.Millisecond, 1500*time.Millisecond)
		}
	})
	return &wg
}

// harness samples rollouts of a run of its own through a gateway that shares the fleet, and comes
// again as OpenAI's clients do.
func (p *plane) harness(rollouts int) {
	p.t.Helper()
	p.open("h", func(c *runfile.RunConfig) {
		// a server that hangs must not take the rollout's time
		c.Limits.TurnTimeout.Whole = runfile.Duration(4 * time.Second)
		c.External, c.Tasks, c.Feeds = true, nil, []runfile.Feed{{Name: "trainer", GroupsPerBatch: 1}}
	})
	g, err := gateway.New(servicetest.Env(p.t, p.log), p.fleet, gateway.DefaultOptions())
	if err != nil {
		p.t.Fatal(err)
	}
	web := httptest.NewServer(g)
	p.t.Cleanup(web.Close)
	for i := range rollouts {
		p.outside.Go(func() {
			var started struct {
				ID string `json:"id"`
			}
			p.post(web.URL+"/rollouts", map[string]any{"run": "h", "task": "theirs",
				"group": fmt.Sprint("g", i), "size": 1}, &started)
			talk := []map[string]any{{"role": "user", "content": fmt.Sprint("work ", i)}}
			for range 3 {
				p.post(web.URL+"/rollouts/"+started.ID+"/v1/chat/completions", map[string]any{"messages": talk}, nil)
				talk = append(talk, map[string]any{"role": "user", "content": "go on"})
			}
			p.post(web.URL+"/rollouts/"+started.ID+"/finish", map[string]any{"reward": 1}, nil)
		})
	}
}

// post sends a request again while the gateway says that it may be.
func (p *plane) post(url string, body any, into any) {
	data, err := json.Marshal(body)
	if err != nil {
		p.t.Error(err)
		return
	}
	for deadline := time.Now().Add(2 * time.Minute); ; {
		resp, err := http.Post(url, "application/json", bytes.NewReader(data))
		if err != nil {
			p.t.Errorf("POST %s: %v", url, err)
			return
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		switch {
		case err == nil && resp.StatusCode < 300:
			if into != nil && json.Unmarshal(text, into) != nil {
				p.t.Errorf("POST %s answered %s", url, text)
			}
			return
		case err == nil && resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode < 500,
			time.Now().After(deadline):
			p.t.Errorf("POST %s answered %s: %s", url, resp.Status, text)
			return
		}
		after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		time.Sleep(max(200*time.Millisecond, time.Duration(after)*time.Second))
	}
}

// finished waits until the run has closed by itself, and the harness is done.
func (p *plane) finished() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 4*time.Minute)
	defer cancel()
	enough := errors.New("enough")
	filter := events.Event{Run: "r", Type: events.RunClosedType, Entity: "r"}.Subject()
	if err := p.log.Follow(ctx, "r", 1, filter, func(events.Event) error { return enough }); !errors.Is(err, enough) {
		p.t.Fatalf("the run is not over: %v\n%v", err, servicetest.IDs(servicetest.All(p.t, p.log, "r")))
	}
	p.outside.Wait()
}

// prove holds the runs to all that Rondo promises.
func (p *plane) prove() {
	p.t.Helper()
	runs, err := p.log.Runs(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	turns := 0
	for _, run := range runs {
		found, err := audit.Check(p.t.Context(), p.log.Reader, run)
		if err != nil {
			p.t.Fatal(err)
		}
		for _, f := range found.Findings {
			p.t.Errorf("run %s: %s", run, f)
		}
		if failed := servicetest.All(p.t, p.log, run, events.RolloutFailedType,
			events.DeadLetteredType); len(failed) > 0 {
			p.t.Errorf("run %s: failed are %v, the first with %s", run, servicetest.IDs(failed), failed[0].Data)
		}
		turns += len(servicetest.All(p.t, p.log, run, events.TurnSampledType))
	}
	books, err := books.Read(p.t.Context(), p.log.Reader, "r")
	if err != nil {
		p.t.Fatal(err)
	}
	if b := books.Balance(""); !b.AddsUp() {
		p.t.Errorf("the ledger does not add up: %+v", b)
	}
	answered := 0
	for _, s := range p.servers {
		s.mu.Lock()
		answered += s.answered
		p.t.Logf("%T: %d requests, %d answers, at most %d at once in its last life", s.dialect, s.asked,
			s.answered, s.life.most)
		s.mu.Unlock()
	}
	if turns == 0 || turns > answered {
		p.t.Errorf("%d turns stand on the log, the servers have answered %d times", turns, answered)
	}
}
