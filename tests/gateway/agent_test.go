package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/agents"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/gateway"
	"github.com/rondo-rl/rondo/services/generator"
	"github.com/rondo-rl/rondo/services/intake"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/services/toolrunner"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
	planes "github.com/rondo-rl/rondo/tests/plane"
)

func TestMain(m *testing.M) { os.Exit(testAll(m)) }

func testAll(m *testing.M) int {
	var err error
	if shared, err = os.MkdirTemp("", "rondo-agents-"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(shared)
	return m.Run() // each test has a plane and sandboxes: as many at once as there are processors
}

// settings are what only the start of an agent knows.
const settings = agents.Model + " " + agents.BaseURL + " " + agents.Key + " " + agents.Session

// shared is a folder for all tests: the layer is built and unpacked once.
var shared string

// buildLayer puts the program in the folder agent into a layer, in a store of its own. It is a
// small one: it goes through each plane's store.
var buildLayer = sync.OnceValues(func() (storage.Store, string) {
	store, err := dir.Open(filepath.Join(shared, "objects"))
	if err != nil {
		panic(err)
	}
	folder := filepath.Join(shared, "files")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", folder+"/", "./agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err = os.Mkdir(folder, 0o755); err != nil {
		panic(err)
	}
	if out, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build the agent: %v\n%s", err, out))
	}
	program := runfile.AgentFolder + "/agent"
	built, err := agents.Builder{Store: store, Scratch: shared}.Build(context.Background(), agents.Profile{
		Name: "scripted", Install: agents.Install{Files: folder}, Command: []string{program, agents.Instruction},
		Check: []string{program, "nothing", ""},
	})
	if err != nil {
		panic(err)
	}
	return store, built.Digest
})

// storeLayer copies the layer into a store.
func storeLayer(t *testing.T, store storage.Store) (digest string) {
	t.Helper()
	from, digest := buildLayer()
	for info, err := range from.List(t.Context(), "") {
		var data []byte
		if err == nil {
			data, err = from.Get(t.Context(), info.Key)
		}
		if err == nil {
			err = store.Put(t.Context(), info.Key, data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return digest
}

// mends is a model that mends the task in three turns.
func mends(_ int, a ask) said {
	call := func(command string) said {
		args, _ := json.Marshal(map[string]string{"command": command})
		return said{content: "I shall.", calls: [][2]string{{"sh", string(args)}}}
	}
	switch len(a.Messages) {
	case 1:
		return call("cat a.txt")
	case 3:
		return call("echo two >> a.txt; cat a.txt")
	}
	return said{content: "Done."}
}

// newAgentPlane opens a run whose agent is this program, with all that its rollouts meet. The way
// to the model is a gateway of the tool runner's own.
func newAgentPlane(t *testing.T, what string, model func(int, ask) said, change func(*runfile.RunConfig)) (*plane,
	*backend) {
	t.Helper()
	sandboxtest.Require(t)
	return newAgentPlaneOn(t, natstest.Log(t), what, model, change)
}

// newAgentPlaneOn does so on a log.
func newAgentPlaneOn(t *testing.T, log *eventlog.Log, what string, model func(int, ask) said,
	change func(*runfile.RunConfig)) (*plane, *backend) {
	t.Helper()
	p, b := &plane{t: t, log: log}, newBackend(t, model)
	cfg := servicetest.Config("theirs")
	cfg.Endpoint, cfg.GroupSize, cfg.InFlight, cfg.Feeds, cfg.SystemPrompt = b.url, 2, 2,
		[]runfile.Feed{{Name: "trainer", GroupsPerBatch: 1}}, ""
	cfg.Limits.Tries = 2
	cfg.Agent = &runfile.Agent{Layer: storeLayer(t, p.log.Store()),
		Env: map[string]string{"SCRIPTED_SETTINGS": settings}, Files: map[string]string{".scripted/settings": settings},
		Command: []string{runfile.AgentFolder + "/agent", what, runfile.InstructionArgument, b.host()}}
	cfg.Tasks[0].Snapshot = servicetest.Blob(t, p.log.Store(), sandboxtest.Pack(t, map[string]string{"a.txt": "one\n"}))
	cfg.Tasks[0].Tests = servicetest.Blob(t, p.log.Store(), sandboxtest.Pack(t, map[string]string{"test.sh": mended}))
	if change != nil {
		change(&cfg)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	planes.Start(t, p.log, "r", cfg, func(ctx context.Context, env pipeline.Env) error {
		return generator.Run(ctx, env, servicetest.Fleet(t, env, nil), generator.DefaultOptions())
	})
	return p, b
}

// agents starts a tool runner that starts agents.
func (p *plane) agents() (stop func()) {
	p.t.Helper()
	env := servicetest.Env(p.t, p.log)
	g, err := gateway.New(env, servicetest.Fleet(p.t, env, nil), gateway.DefaultOptions())
	if err != nil {
		p.t.Fatal(err)
	}
	layers, err := agents.OpenCache(filepath.Join(shared, "layers"), agents.CacheBytes)
	if err != nil {
		p.t.Fatal(err)
	}
	opts := toolrunner.Options{Slots: 2, Pool: runfile.DefaultRunConfig().Pool, Layers: layers,
		Model: func(run, rollout string) toolrunner.Model { return g.Agent(run, rollout) }}
	return servicetest.Start(p.t, func(ctx context.Context) error { return toolrunner.Run(ctx, env, opts) })
}

// TestAgentsMakeBatches: a program of one's own makes the rollouts of a run, from the start of a
// group to a batch of exact tokens.
func TestAgentsMakeBatches(t *testing.T) {
	t.Parallel()
	p, _ := newAgentPlane(t, "mend", mends, nil)
	p.agents()
	batch := servicetest.WaitData[events.BatchReady](t, p.log, "r", events.BatchReadyType, "trainer")
	if batch.Samples != 2 {
		t.Errorf("a batch of %d samples, want one for each of two rollouts", batch.Samples)
	}
	for _, e := range servicetest.Wait(t, p.log, "r", events.RolloutScoredType, "*", 2)[:2] {
		scored := servicetest.Data[events.RolloutScored](t, e)
		finished := servicetest.WaitData[events.RolloutFinished](t, p.log, "r", events.RolloutFinishedType, e.Entity)
		if scored.Reward != 1 || finished.StopReason != events.StopFinished || finished.Turns != 3 ||
			finished.Samples != 1 || finished.TextOnly || finished.Workspace == nil {
			t.Errorf("%s: reward %g, %+v", e.Entity, scored.Reward, finished)
		}
		answer := servicetest.WaitData[events.WorkspaceAnswered](t, p.log, "r", events.WorkspaceAnsweredType, e.Entity)
		if *answer.ExitCode != 0 || answer.Output.Text != "agent begins\n" || answer.Agent.Requests != 3 ||
			answer.Agent.Refused != 0 || answer.Network != nil {
			t.Errorf("%s ended %+v, %+v", e.Entity, answer, answer.Agent)
		}
	}
	servicetest.CloseRun(t, p.log, "r")
	planes.Prove(t, p.log, "r")
}

// TestEndsOfAgents: each way to end has an outcome by rule. What an agent did is scored; what it
// did not begin, and what the machine failed, is a failure.
func TestEndsOfAgents(t *testing.T) {
	t.Parallel()
	sandboxtest.Require(t)
	short := func(c *runfile.RunConfig) { c.Limits.Timeout = runfile.Duration(8 * time.Second) }
	for _, c := range []struct {
		what, stop, class, why string
		turns                  int
		model                  func(int, ask) said
		uncounting             int
		change                 func(*runfile.RunConfig)
	}{
		{what: "probe", stop: events.StopFinished, turns: 1},
		{what: "exit", stop: events.StopExit, turns: 1},
		{what: "flood", stop: events.StopOutput, turns: 1},
		{what: "hoard", stop: events.StopExit, turns: 1,
			change: func(c *runfile.RunConfig) { c.Tasks[0].MemoryMB = 256 }},
		{what: "hang behind", stop: events.StopTimeout, turns: 1, change: short},
		{what: "forks", stop: events.StopFinished, turns: 3},
		{what: "daemon", stop: events.StopFinished, turns: 1, model: counts},
		{what: "for ever", stop: events.StopMaxTurns, turns: 4,
			change: func(c *runfile.RunConfig) { c.Limits.Turns = 4 }},
		{what: "for ever", stop: events.StopMaxTokens, turns: 2,
			change: func(c *runfile.RunConfig) { c.Limits.Tokens = 150 }},
		{what: "nothing", class: events.ClassAgent, why: "the agent ended with code 0 and asked nothing of its model"},
		{what: "hang", class: events.ClassAgent,
			why: "the agent asked nothing of its model until limits.timeout was over", change: short},
		{what: "not found", class: events.ClassAgent,
			why:    "the agent's command was not found in the sandbox (code 127)",
			change: func(c *runfile.RunConfig) { c.Agent.Command = []string{"no-such-agent"} }},
		{what: "no home", class: events.ClassAgent,
			why: "HOME of agent.env, /proc/none, is no folder that it can write; it wrote \"mkdir",
			change: func(c *runfile.RunConfig) {
				c.Agent.Command = []string{"sh", "-c", "echo begins >&2; mkdir -p $HOME/.agent"}
				c.Agent.Env, c.Agent.Files = map[string]string{"HOME": "/proc/none"}, nil
			}},
		{what: "no layer", class: events.ClassSandbox, why: "there is no such layer",
			change: func(c *runfile.RunConfig) { c.Agent.Layer = strings.Repeat("0", 64) }},
		{what: "exit", class: events.ClassAgent,
			why: "the agent ended (code 3), and all of its 1 requests were refused, the last one: ",
			model: func(int, ask) said {
				return said{status: http.StatusBadRequest, raw: `{"error":{"message":"no tools here"}}`}
			}},
		{what: "miscounts", class: events.ClassEndpoint,
			why:        "the agent ended (code 3) behind a request that the machine did not answer: ",
			uncounting: http.StatusInternalServerError},
		{what: "miscounts", stop: events.StopExit, turns: 1, uncounting: http.StatusNotFound},
		{what: "mend", class: events.ClassEndpoint,
			why: "the agent ended (code 3) behind a request that the machine did not answer: ", change: short,
			model: func(n int, a ask) said {
				if len(a.Messages) > 1 {
					return said{status: http.StatusInternalServerError, raw: "broken"}
				}
				return mends(n, a)
			}},
	} {
		t.Run(strings.ReplaceAll(c.what+" "+c.stop+c.class, " ", "_"), func(t *testing.T) {
			t.Parallel()
			if c.model == nil {
				c.model = mends
			}
			p, b := newAgentPlane(t, c.what, c.model, func(cfg *runfile.RunConfig) {
				cfg.GroupSize, cfg.InFlight, cfg.Epochs, cfg.Feeds = 1, 1, 1, nil
				if c.change != nil {
					c.change(cfg)
				}
			})
			b.uncounts(c.uncounting)
			p.agents()
			const rollout = "g000001-0"
			if c.class != "" {
				failed := servicetest.WaitData[events.RolloutFailed](t, p.log, "r", events.RolloutFailedType, rollout)
				if failed.Class != c.class || !strings.Contains(failed.Message, c.why) ||
					failed.Stage != events.StageTools {
					t.Errorf("failed %+v", failed)
				}
			} else {
				finished := servicetest.WaitData[events.RolloutFinished](t, p.log, "r", events.RolloutFinishedType,
					rollout)
				answer := servicetest.WaitData[events.WorkspaceAnswered](t, p.log, "r", events.WorkspaceAnsweredType,
					rollout)
				said, err := answer.Errors.Get(t.Context(), p.log.Store())
				if err != nil || finished.StopReason != c.stop || finished.Turns != c.turns {
					t.Errorf("finished %+v: %+v, %s, %v", finished, answer.Agent, said, err)
				}
				if answer.Agent.OutOfMemory != (c.what == "hoard") {
					t.Errorf("ended %+v %+v", answer, answer.Agent)
				}
				if c.what == "daemon" && answer.Agent.Leftovers == 0 || c.what == "flood" && answer.DroppedBytes == 0 {
					t.Errorf("ended %+v %+v", answer, answer.Agent)
				}
				servicetest.WaitData[events.RolloutScored](t, p.log, "r", events.RolloutScoredType, rollout)
			}
			servicetest.Wait(t, p.log, "r", events.RunClosedType, "r", 1)
			planes.Prove(t, p.log, "r")
		})
	}
}

// TestAnAgentWhoseRolloutIsOver ends with it: its run was closed, or it was given up.
func TestAnAgentWhoseRolloutIsOver(t *testing.T) {
	t.Parallel()
	began := make(chan struct{}, 8)
	p, _ := newAgentPlane(t, "hang behind", func(n int, a ask) said {
		began <- struct{}{}
		return mends(n, a)
	}, func(cfg *runfile.RunConfig) { cfg.GroupSize, cfg.InFlight, cfg.Epochs, cfg.Feeds = 1, 1, 1, nil })
	stop := p.agents()
	<-began
	servicetest.Wait(t, p.log, "r", events.TurnSampledType, "*", 1)
	servicetest.Append(t, p.log, servicetest.Event(t, "r", events.RolloutFailedType, "g000001-0", "0",
		events.RolloutFailed{Stage: events.StageSampler, Class: events.ClassCancelled}))
	ended := make(chan struct{})
	go func() { stop(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(15 * time.Second): // less than a service's grace, much less than the agent's hour
		t.Error("the agent goes on")
	}
}

// TestOnlyAnAgentHasItsRollout: nobody else reaches it, whatever key he has, and of two agents of
// one rollout, as when a runner was taken for dead, the one that asked first goes on and the other
// ends.
func TestOnlyAnAgentHasItsRollout(t *testing.T) {
	t.Parallel()
	p := &plane{t: t, log: natstest.Log(t)}
	cfg := servicetest.Config("theirs")
	cfg.Endpoint, cfg.InFlight = newBackend(t, counts).url, 2
	cfg.Agent = &runfile.Agent{Command: []string{"x"}}
	servicetest.OpenRun(t, p.log, "r", cfg)
	servicetest.StartRollout(t, p.log, "r", "g000001-0", "theirs")
	servicetest.StartRollout(t, p.log, "r", "xtheirs-0", "theirs")
	servicetest.Start(t, func(ctx context.Context) error { return intake.Run(ctx, servicetest.Env(t, p.log)) })
	p.url = p.serve(nil)
	asks := map[string]any{"messages": []any{map[string]any{"role": "user", "content": "hello"}}}
	if got, err := p.do(t.Context(), http.MethodPost, "/rollouts/r.g000001-0/v1/chat/completions",
		asks); err != nil || got.status != http.StatusNotFound {
		t.Errorf("from outside: %d %s %v", got.status, got.body, err)
	}
	_, err := p.log.Submitter.Submit(t.Context(), eventlog.Submission{Run: "r", Type: events.WorkspaceCalledType,
		Entity: "xtheirs-0", ID: "one", Source: "gateway/x",
		Data: events.WorkspaceCalled{Op: events.WorkspaceAgent}})
	if !errors.Is(err, eventlog.ErrRefused) ||
		!strings.Contains(err.Error(), "only Rondo itself starts a run's agent") {
		t.Errorf("a harness starts an agent: %v", err)
	}
	env := servicetest.Env(t, p.log)
	g, err := gateway.New(env, servicetest.Fleet(t, env, nil), gateway.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	first, second := g.Agent("r", "g000001-0"), g.Agent("r", "g000001-0")
	ask := func(a *gateway.Agent) int {
		body, _ := json.Marshal(asks)
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/chat/completions", bytes.NewReader(body)))
		return w.Code
	}
	servicetest.Append(t, p.log, servicetest.Event(t, "r", events.RolloutAnnotatedType, "g000001-0", "a",
		events.RolloutAnnotated{Text: "a remark"}))
	if one, two, three := ask(first), ask(second), ask(first); one != http.StatusOK || two != http.StatusConflict ||
		three != http.StatusOK {
		t.Errorf("answered %d, %d, %d", one, two, three)
	}
	select {
	case <-second.End():
	default:
		t.Error("the second agent goes on")
	}
	if _, failed := second.Ended(0); failed == nil {
		t.Error("that another agent has the rollout is not the machine's doing")
	}
	if ended, failed := first.Ended(0); failed != nil || ended.Requests != 2 || ended.Refused != 0 {
		t.Errorf("the first one: %+v, %v", ended, failed)
	}
	if turns := servicetest.All(t, p.log, "r", events.TurnSampledType); len(turns) != 2 {
		t.Errorf("%d turns", len(turns))
	}
}
