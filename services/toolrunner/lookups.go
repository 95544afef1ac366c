package toolrunner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/tools"
	"github.com/rondo-rl/rondo/storage"
)

// origin is what the answers of a run's tools follow from beside the
// workspace's change and the call.
type origin struct {
	Version    int
	Run        string
	Task       string // its digest
	Snapshot   string
	Workdir    string
	Toolchains []string
	MemoryMB   int
	Pool       string // its runners have the same programs
	Isolation  string
	Filesystem string
	Redacted   bool
	Network    []string `json:",omitempty"` // what the run allows
}

// lookups lets a turn's calls be answered by what the same calls answered before in the run.
type lookups struct {
	cache  *cache
	run    string
	origin origin
	// root is that of the snapshot's index.
	root func(context.Context) (string, error)
}

// memoryOf is what is known of a rollout's workspace before its last turn; nil where the
// run wants no answers again.
func (s *Service) memoryOf(ctx context.Context, cfg runfile.RunConfig, set *tools.Set, task runfile.TaskSpec,
	r *events.Rollout, box *sandbox.Sandbox) (*lookups, *tools.Cache, error) {
	if !cfg.Tools.Caches() {
		return nil, nil, nil
	}
	m := &lookups{cache: s.cache, run: r.Run, origin: origin{
		Version: tools.Version, Run: r.Run, Task: task.Digest, Snapshot: task.Snapshot.SHA256, Workdir: task.Workdir,
		Toolchains: task.Toolchains,
		MemoryMB:   task.MemoryMB, Pool: s.opts.Pool, Isolation: box.Isolation(), Filesystem: box.FSMode(),
		Redacted: cfg.Has(runfile.FeatureRedactSecrets), Network: cfg.Network.Allowed(),
	}, root: func(ctx context.Context) (string, error) { return s.searcher.root(ctx, task) }}
	known := &tools.Cache{Deterministic: task.Deterministic, Answer: m.answer}
	known.Effect, known.Settled = earlier(r, set, task)
	if r.WasLaid() {
		known.Effect = tools.Anything // a step's setup.sh may have made links
	}
	workspace, last := r.Workspace(), r.LastTools()
	if workspace != nil {
		known.Tree = workspace.SHA256
	}
	if last != nil && last.State != nil && last.State.Background || known.Effect != tools.Anything {
		return m, known, nil
	}
	links, err := s.cache.links(ctx, workspace)
	known.Closed = !links
	return m, known, err
}

func called(asked []events.ToolCall) []tools.Call {
	calls := make([]tools.Call, len(asked))
	for i, c := range asked {
		calls[i] = tools.Call{ID: c.ID, Name: c.Name, Arguments: c.Arguments}
	}
	return calls
}

// effects is what the calls of a rollout's first turns may have done. It is kept beside the fold of
// the rollout, so that each call is looked at once.
type effects struct {
	mu      sync.Mutex
	turns   int
	effect  tools.Effect
	settled bool
}

// earlier is what the calls before the last turn's may have done.
func earlier(r *events.Rollout, set *tools.Set, task runfile.TaskSpec) (effect tools.Effect, settled bool) {
	e := events.Note[effects](r)
	e.mu.Lock()
	defer e.mu.Unlock()
	before := len(r.Turns) - 1
	if before < e.turns {
		e = &effects{} // who has read the rollout later was here before
	}
	if e.turns == 0 {
		e.effect, e.settled = tools.Nothing, true
	}
	for ; e.turns < before; e.turns++ {
		calls := called(r.Turns[e.turns].ToolCalls)
		e.effect = min(e.effect, set.EffectOf(task.Workdir, calls))
		e.settled = e.settled && set.Settled(task.Workdir, task.Deterministic, calls)
	}
	return e.effect, e.settled
}

// links reports whether a workspace's change makes links, which may lead out
// of it; nil is no change.
func (c *cache) links(ctx context.Context, change *storage.Ref) (bool, error) {
	if change == nil {
		return false, nil
	}
	if links, ok := c.linked.Get(change.SHA256); ok {
		return links, nil
	}
	entries, err := sandbox.Contents(changeOf(ctx, c.store, c.parts, change))
	if errors.Is(err, sandbox.ErrSource) {
		return false, fmt.Errorf("workspace: %w", err)
	}
	links := err != nil // a change that is no archive may make some
	for _, entry := range entries {
		links = links || strings.HasPrefix(entry, "link to ")
	}
	c.linked.Add(change.SHA256, links)
	return links, nil
}

// name is that of an answer; false where it cannot be known.
func (m *lookups) name(ctx context.Context, key tools.Key) (string, bool) {
	root := ""
	if key.Tool == tools.SearchTool {
		var err error
		if root, err = m.root(ctx); err != nil {
			return "", false
		}
	}
	name, err := digest([]any{m.origin, key, root})
	return name, err == nil
}

func (m *lookups) answer(ctx context.Context, key tools.Key) (tools.Result, bool) {
	name, ok := m.name(ctx, key)
	if !ok {
		return tools.Result{}, false
	}
	a, ok := m.cache.get(ctx, m.run, key.Tool, name)
	return tools.Result{Content: a.Content, ExitCode: a.ExitCode, DroppedBytes: a.DroppedBytes,
		Duration: time.Duration(float64(a.DurationMS * float64(time.Millisecond)))}, ok
}

// remember keeps the answers of calls that were run. Those in which secrets
// were found are not kept.
func (m *lookups) remember(ctx context.Context, ran []tools.Result, stated []events.ToolResult) {
	for i, r := range ran {
		if r.Key == nil || r.Content != stated[i].Content {
			continue
		}
		if name, ok := m.name(ctx, *r.Key); ok {
			m.cache.put(ctx, m.run, r.Key.Tool, name, answer{Content: r.Content, ExitCode: r.ExitCode,
				DroppedBytes: r.DroppedBytes, DurationMS: stated[i].DurationMS})
		}
	}
}
