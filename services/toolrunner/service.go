// Package toolrunner runs the tool calls of sampled turns in the sandbox that
// it holds for each rollout.
package toolrunner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/agents"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/pipeline/outage"
	"github.com/rondo-rl/rondo/pipeline/presence"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/egress"
	"github.com/rondo-rl/rondo/sandbox/fault"
	"github.com/rondo-rl/rondo/sandbox/tools"
	"github.com/rondo-rl/rondo/sandbox/toolserver"
	"github.com/rondo-rl/rondo/sandbox/toolset"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/parts"
	"github.com/rondo-rl/rondo/tasks"
	"github.com/rondo-rl/rondo/wording"
)

// Options of the service.
type Options struct {
	// Slots is how many turns run at once.
	Slots int
	// Pool is the route of turns whose rollout has no sandbox yet.
	Pool string
	// Labels are those that tasks can ask for.
	Labels []string
	// Capacity is how many sandboxes the runner holds between turns, at some megabytes each
	// (DefaultCapacity); the longest idle one makes room.
	Capacity int
	tasks.Machine
	// Keys are what servers of tools outside of the sandbox are shown: those
	// that are for their URLs.
	Keys fleet.Keys
	// Network is what runs may ask for of the network, and where registries are.
	Network egress.Options
	// Snapshots holds unpacked snapshots that sandboxes share; nil gives each a copy.
	Snapshots *sandbox.Snapshots

	// Model leads the agent of a rollout to its model. Without it the runner starts no agents.
	Model func(run, rollout string) Model
	// Layers has the agents' own files; nil offers none.
	Layers *agents.Cache

	parts *parts.Cache // of large changes of workspaces; nil without one
}

// partsBytes bounds what a runner keeps on its disk of large changes of workspaces: rollouts of a
// group share much of theirs.
const partsBytes = 2 << 30

// keptEnds is how many ends of agents a runner remembers.
const keptEnds = 1024

// Service consumes turn_sampled and workspace_called, and emits tools_completed,
// workspace_answered, rollout_retried and rollout_failed; of agents it records turns and
// emits rollout_finished, too.
type Service struct {
	store      storage.Store
	publish    func(context.Context, []events.Event) (stored []events.Event, adopted bool, err error)
	opts       Options
	held       *pool
	heartbeats *heartbeats
	offer      *offer
	working    work
	runner     string
	// redacted counts secrets, by rule.
	redacted *prometheus.CounterVec
	searcher *searcher
	cache    *cache
	tools    *tools.Sets
	// recalled counts calls, by whether they were answered by the cache.
	recalled *prometheus.CounterVec
	ended    *lru.Cache[string, agentEnd] // how agents ended whose end may not be on the log yet
}

// Run is the service.
func Run(ctx context.Context, env pipeline.Env, opts Options) error {
	s, err := newService(env, opts)
	if err != nil {
		return err
	}
	return s.run(ctx, env)
}

func newService(env pipeline.Env, opts Options) (*Service, error) {
	runner, err := identity(env.Dir)
	if err != nil {
		return nil, err
	}
	redacted, err := newRedacted(env.Metrics)
	if err != nil {
		return nil, err
	}
	searcher, err := newSearcher(env.Log.Store())
	if err != nil {
		return nil, err
	}
	cache, err := newCache(env.Log.Store(), env.Dir, env.Logger)
	if err != nil {
		return nil, err
	}
	recalled, err := newLookupsCounter(env.Metrics)
	if err != nil {
		return nil, err
	}
	if opts.Snapshots, err = sandbox.OpenSnapshots(filepath.Join(env.Dir, "snapshots"), sandbox.RoleAgent,
		sandbox.SnapshotBytes); err != nil {
		return nil, err
	}
	if opts.parts, err = parts.OpenCache(filepath.Join(env.Dir, "parts"), partsBytes); err != nil {
		return nil, err
	}
	cache.parts = opts.parts
	opts.Network.Scratch = env.Dir
	gateway, err := egress.New(env.Log.Store(), opts.Network)
	if err != nil {
		return nil, err
	}
	held := newPool(env.Log.Reader, env.Logger, opts, gateway)
	if err := held.meter(env.Metrics); err != nil {
		return nil, err
	}
	ended, err := lru.New[string, agentEnd](keptEnds)
	if err != nil {
		return nil, err
	}
	return &Service{
		ended:    ended,
		searcher: searcher, cache: cache, recalled: recalled, tools: tools.NewSets(),
		store: env.Log.Store(), publish: env.Publish, opts: opts, runner: runner, held: held,
		heartbeats: newHeartbeats(env.Log.Conn(), env.Log.JetStream(), runner),
		offer:      newOffer(opts), redacted: redacted,
	}, nil
}

func (s *Service) run(ctx context.Context, env pipeline.Env) error {
	defer s.held.closeAll()
	defer s.cache.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.heartbeats.run(ctx)
	go s.held.expire(ctx)
	go presence.Speak(ctx, env.Log.Conn(), topology.ToolRunner, s.runner,
		func() presence.Report { return s.report(env.Instance) })
	return pipeline.RunEffect(ctx, env, pipeline.Effect{
		Name: topology.ToolRunner, Slots: s.opts.Slots,
		Serves: func(cfg runfile.RunConfig) bool { return cfg.Agent == nil || s.opts.Model != nil },
		Handle: s.Handle, Stage: events.StageTools,
		Routes: func(ctx context.Context, run string) []string {
			return s.routes(ctx, env, run)
		},
	})
}

// Handle answers the calls of the rollout's last turn. A delivery that was
// overtaken finds nothing to do.
func (s *Service) Handle(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
	r, err := m.Log.Rollout(ctx, m.Event.Run, m.Event.Entity)
	if err != nil {
		return nil, err
	}
	if r.Over() || r.Finished != nil {
		s.held.release(r.Run, r.ID)
		return nil, nil
	}
	defer s.working.begin(r.Run + "/" + r.ID)()
	called := m.Event.Type == events.WorkspaceCalledType
	cfg, err := m.Log.Config(ctx, r.Run)
	if err != nil {
		return nil, err
	}
	if cfg.Agent == nil && (called && r.CallUnderWay() == nil || !called && !r.AwaitsTools()) {
		return nil, nil
	}
	task, err := m.Log.Task(ctx, r.Run, r.Started.Task)
	if errors.Is(err, runfile.ErrNoTask) {
		fact, err := r.Fail(events.StageTools, events.ClassInternal, err)
		return []events.Event{fact}, err
	}
	if err != nil {
		return nil, err
	}
	if cfg.Agent != nil {
		return s.agent(ctx, m.Log, cfg, task, &r)
	}
	if called {
		return s.call(ctx, m.Log, cfg, task, &r)
	}
	done, err := s.work(ctx, cfg, task, &r)
	if err == nil {
		fact, err := r.Next(events.ToolsCompletedType, events.Ordinal(done.Turn), done)
		return []events.Event{fact}, err
	}
	s.held.release(r.Run, r.ID) // whatever state it is in, the log and the store have a better one
	if ctx.Err() != nil {
		return nil, err
	}
	theirs, waits := s.agents(ctx, cfg, task, &r, err)
	if waits != nil {
		return nil, waits
	}
	if theirs {
		lost := s.answerLost(&r, done, err)
		fact, err := r.Next(events.ToolsCompletedType, events.Ordinal(lost.Turn), lost)
		return []events.Event{fact}, err
	}
	return again(cfg, &r, err)
}

// again states a failed try, or the failure when tries are used up.
func again(cfg runfile.RunConfig, r *events.Rollout, cause error) ([]events.Event, error) {
	fact, final, err := r.Retry(cfg.Limits, events.StageTools, class(cause), cause)
	if err != nil || final {
		return []events.Event{fact}, err
	}
	return []events.Event{fact}, pipeline.RetryAfter(cause, pipeline.NextTry.Delay(r.Tries+1))
}

// work runs the turn's calls and stores the workspace's change. With an error it tells the kind of
// the sandbox, where there was one.
func (s *Service) work(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec,
	r *events.Rollout) (done events.ToolsCompleted, err error) {
	last := r.LastTurn()
	box, err := s.lease(ctx, cfg, task, r)
	if err != nil {
		return events.ToolsCompleted{}, err
	}
	defer func() { s.giveBack(box, done.Lost) }()
	done = events.ToolsCompleted{Turn: last.Turn, Runner: s.runner, Isolation: box.Isolation(),
		Filesystem: box.FSMode()}
	set, err := s.tools.Set(cfg.ToolSettings())
	if err != nil {
		return events.ToolsCompleted{}, err
	}
	memory, known, err := s.memoryOf(ctx, cfg, set, task, r, box.Sandbox)
	if err != nil {
		return events.ToolsCompleted{}, fmt.Errorf("cache for %s: %w", r.ID, err)
	}
	state, left := toolState(r), min(r.ToolTimeLeft(cfg.Limits), r.AgentTimeLeft(task))
	turn := tools.Work{Sandbox: box.Sandbox, Search: s.searcher.offered(cfg, task), Servers: box.servers.Call,
		State: &state, Known: known, Left: &left}
	ran, err := set.Run(ctx, turn, called(last.ToolCalls))
	if err != nil {
		return done, fmt.Errorf("run tools of %s: %w", r.ID, fault.Ended(err))
	}
	results, redacted, err := stated(ctx, cfg, ran, &state)
	if err != nil {
		return events.ToolsCompleted{}, fmt.Errorf("run tools of %s: %w", r.ID, err)
	}
	if memory != nil {
		memory.remember(ctx, ran, results)
	}
	for _, result := range results {
		if result.Cache != "" {
			s.recalled.WithLabelValues(result.Cache).Inc()
		}
	}
	for rule, n := range redacted {
		s.redacted.WithLabelValues(rule).Add(float64(n))
	}
	done.Results, done.Redacted, done.State = results, redacted, state.OrNil()
	if done.Network, err = fetched(ctx, cfg, box.proxy); err != nil {
		return done, err
	}
	err = outage.Outlast(ctx, func() (err error) { done.Workspace, err = s.saveWorkspace(ctx, box); return err })
	if err != nil {
		err = fmt.Errorf("store workspace of %s: %w", r.ID, err)
		if class := fault.ClassOf(err); class != "" && ctx.Err() == nil {
			lose(&done, r, class, err)
			return done, nil
		}
		return done, err
	}
	box.left = stateAfter(done.Turn, done.Workspace)
	return done, nil
}

// lease is the rollout's sandbox, if it is as isolated as the run demands.
func (s *Service) lease(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec,
	r *events.Rollout) (*leased, error) {
	box, err := s.held.take(ctx, cfg, task, r)
	if err != nil || cfg.MinIsolation == "" {
		return box, err
	}
	if err := sandbox.RequireIsolation(box.Isolation(), cfg.MinIsolation); err != nil {
		box.end()
		return nil, fmt.Errorf("sandbox of %s on %s: %w by min_isolation of the run", r.ID, s.runner, err)
	}
	return box, nil
}

// giveBack keeps a sandbox for the rollout's next turn or call, unless what it did is lost.
func (s *Service) giveBack(box *leased, lost string) {
	if lost != "" {
		box.end()
		return
	}
	s.held.put(box)
}

// stated are the results as they are recorded: without the credentials of this process, and where
// the run wants that, without secrets, and the state, too.
func stated(ctx context.Context, cfg runfile.RunConfig, ran []tools.Result,
	state *toolset.State) ([]events.ToolResult, map[string]int, error) {
	results := make([]events.ToolResult, len(ran))
	for i, a := range ran {
		results[i] = events.ToolResult{
			CallID: a.CallID, Name: a.Name, Content: wording.Clean(a.Content), Error: a.Error, ExitCode: a.ExitCode,
			DroppedBytes: a.DroppedBytes,
			StartedAt:    a.StartedAt.UTC(), DurationMS: milliseconds(a.Duration), Cache: a.Cache,
			OriginalMS: milliseconds(a.Original),
		}
	}
	if !cfg.Has(runfile.FeatureRedactSecrets) {
		return results, nil, nil
	}
	redacted, err := redactResults(ctx, results, state, redactWithin)
	return results, redacted, err
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// toolState is what the tools remember of the turns before.
func toolState(r *events.Rollout) (state toolset.State) {
	if last := r.LastTools(); last != nil && last.State != nil {
		state = *last.State
	}
	return state
}

// saveWorkspace stores the workspace's change as it comes out of the sandbox. Parts that the turn
// before has stored are not stored again.
func (s *Service) saveWorkspace(ctx context.Context, box *leased) (*storage.Ref, error) {
	stored := parts.NewWriter(ctx, s.store, box.parts)
	to := &storing{writer: stored}
	found, err := box.ChangesTo(ctx, to)
	if err != nil || !found.Differs {
		stored.Abandon()
		return nil, cmp.Or(to.err, fault.Mark(err)) // a failure of the store is not the agent's
	}
	ref, index, err := stored.Close()
	if err != nil {
		return nil, err
	}
	box.parts = index
	s.cache.linked.Add(ref.SHA256, found.Links)
	return &ref, nil
}

// newLookupsCounter is the count of calls by what the cache knew of them.
func newLookupsCounter(r prometheus.Registerer) (*prometheus.CounterVec, error) {
	return pipeline.ShareMetric(r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rondo_tool_cache_total",
		Help: "Tool calls by result of the tool cache: found (hit), not found (miss), or not cacheable (bypass).",
	}, []string{"cache"}))
}

// class names the cause of a failed try.
func class(err error) string {
	if errors.Is(err, sandbox.ErrIsolation) || errors.Is(err, sandbox.ErrProxy) {
		return events.ClassIsolation
	}
	if errors.Is(err, toolserver.ErrUnreachable) {
		return events.ClassEndpoint
	}
	if storage.IsUnusable(err) {
		return events.ClassObject
	}
	return events.ClassSandbox
}
