// Package toolrunner runs the tool calls of sampled turns in the sandbox that it holds for each rollout.
package toolrunner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runtime"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/tools"
	"github.com/rondo-rl/rondo/storage"
)

// Options of the service.
type Options struct {
	// Slots is how many turns run at once.
	Slots int
	// Pool is the route of turns whose rollout has no sandbox yet.
	Pool string
	// AllowInsecure runs tools without isolation where the kernel refuses it.
	AllowInsecure bool
	// ToolchainCache is where toolchains keep their warmed caches.
	ToolchainCache string
	// Snapshots holds unpacked snapshots that sandboxes share; nil gives each a copy.
	Snapshots *sandbox.Snapshots
}

// Service consumes turn_sampled, and emits tools_completed, rollout_retried and rollout_failed.
type Service struct {
	log    *eventlog.Log
	opts   Options
	held   *held
	peers  *peers
	runner string
	// redacted counts secrets, by rule.
	redacted *prometheus.CounterVec
	searcher *searcher
}

// Run is the service.
func Run(ctx context.Context, env runtime.Env, opts Options) error {
	s, err := newService(env, opts)
	if err != nil {
		return err
	}
	return s.run(ctx, env)
}

func newService(env runtime.Env, opts Options) (*Service, error) {
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
	if opts.Snapshots, err = openSnapshots(env); err != nil {
		return nil, err
	}
	return &Service{
		searcher: searcher,
		log:      env.Log, opts: opts, runner: runner, held: newHeld(env.Log, env.Logger, opts), peers: newPeers(env.Log, runner), redacted: redacted,
	}, nil
}

func (s *Service) run(ctx context.Context, env runtime.Env) error {
	defer s.held.closeAll()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.peers.run(ctx)
	go s.held.expire(ctx)
	return runtime.RunEffect(ctx, env, runtime.Effect{
		Name: events.ToolRunner, Slots: s.opts.Slots, Handle: s.Handle,
		Routes: func(ctx context.Context, run string) []string {
			return append([]string{s.opts.Pool, events.RunnerRoute(s.runner)}, s.peers.orphans(ctx, run)...)
		},
	})
}

// Handle answers the calls of the rollout's last turn. A delivery that was overtaken finds nothing to do.
func (s *Service) Handle(ctx context.Context, m runtime.Message) ([]events.Event, error) {
	r, err := s.log.Rollout(ctx, m.Event.Run, m.Event.Entity)
	if err != nil {
		return nil, err
	}
	if r.Over() || r.Finished != nil {
		s.held.release(r.Run, r.ID)
		return nil, nil
	}
	if !r.AwaitsTools() {
		return nil, nil
	}
	cfg, err := s.log.Config(ctx, r.Run)
	if err != nil {
		return nil, err
	}
	task, err := s.log.Task(ctx, r.Run, r.Started.Task)
	if errors.Is(err, events.ErrNoTask) {
		fact, err := r.Fail(events.StageTools, events.ClassInternal, err)
		return []events.Event{fact}, err
	}
	if err != nil {
		return nil, err
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
	fact, final, retryErr := r.Retry(cfg.Limits, events.StageTools, class(err), err)
	if retryErr != nil || final {
		return []events.Event{fact}, retryErr
	}
	return []events.Event{fact}, runtime.RetryAfter(err, time.Second<<min(r.Tries, 5))
}

// work runs the turn's calls and stores the workspace's change.
func (s *Service) work(ctx context.Context, cfg events.RunConfig, task events.TaskSpec, r *events.Rollout) (events.ToolsCompleted, error) {
	last := r.LastTurn()
	box, err := s.held.take(ctx, task, r)
	if err != nil {
		return events.ToolsCompleted{}, err
	}
	defer s.held.put(box)
	results, redacted, err := run(ctx, cfg, box.Sandbox, s.searcher.offered(cfg, task), last.ToolCalls)
	if err != nil {
		return events.ToolsCompleted{}, fmt.Errorf("run tools of %s: %w", r.ID, err)
	}
	for rule, n := range redacted {
		s.redacted.WithLabelValues(rule).Add(float64(n))
	}
	done := events.ToolsCompleted{
		Turn: last.Turn, Results: results, Runner: s.runner, Isolation: box.Isolation(), Filesystem: box.FSMode(), Redacted: redacted,
	}
	if done.Workspace, err = s.saveWorkspace(ctx, box.Sandbox); err != nil {
		return events.ToolsCompleted{}, fmt.Errorf("store workspace of %s: %w", r.ID, err)
	}
	box.left = stateAfter(done.Turn, done.Workspace)
	return done, nil
}

// run makes the calls of one turn, and redacts what they answer where the run wants that.
func run(ctx context.Context, cfg events.RunConfig, sb *sandbox.Sandbox, search tools.Search, asked []events.ToolCall) ([]events.ToolResult, map[string]int, error) {
	calls := make([]tools.Call, len(asked))
	for i, c := range asked {
		calls[i] = tools.Call{ID: c.ID, Name: c.Name, Arguments: c.Arguments}
	}
	answers, err := tools.Run(ctx, sb, search, calls)
	if err != nil {
		return nil, nil, err
	}
	results := make([]events.ToolResult, len(answers))
	for i, a := range answers {
		results[i] = events.ToolResult{
			CallID: a.CallID, Name: a.Name, Content: a.Content, Error: a.Error, ExitCode: a.ExitCode,
			DroppedBytes: a.DroppedBytes, StartedAt: a.StartedAt.UTC(), DurationMS: float64(a.Duration) / float64(time.Millisecond),
		}
	}
	if !cfg.Has(events.FeatureRedactSecrets) {
		return results, nil, nil
	}
	redacted, err := redact(ctx, results, redactWithin)
	return results, redacted, err
}

func (s *Service) saveWorkspace(ctx context.Context, box *sandbox.Sandbox) (*storage.Ref, error) {
	changes, err := box.Changes(ctx)
	if err != nil || changes == nil {
		return nil, err
	}
	ref, err := storage.PutBlob(ctx, s.log.Store(), changes)
	return &ref, err
}

// class names the cause of a failed try.
func class(err error) string {
	for _, lost := range []error{storage.ErrNotFound, storage.ErrCorrupt, storage.ErrKey, storage.ErrTooLarge} {
		if errors.Is(err, lost) {
			return events.ClassObject
		}
	}
	return events.ClassSandbox
}
