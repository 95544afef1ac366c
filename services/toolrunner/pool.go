package toolrunner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/egress"
	"github.com/rondo-rl/rondo/sandbox/fault"
	"github.com/rondo-rl/rondo/sandbox/toolserver"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/parts"
	"github.com/rondo-rl/rondo/tasks"
)

// idleAfter is when a sandbox that no turn asked for is given back; the rollout's next turn gets a
// new one, restored from the log.
const idleAfter = time.Minute

// DefaultCapacity is how many sandboxes a runner holds between turns.
const DefaultCapacity = 128

// state is how a turn left a workspace.
type state struct {
	turn      int    // -1 before the first
	calls     int    // of a harness that were answered
	laid      bool   // the files of the step that begins with this turn are laid, and it has not run
	workspace string // digest of the change against the snapshot, "" for none
}

// stateOf is the workspace as the log has it.
func stateOf(r *events.Rollout) state {
	if n := len(r.Answers); n > 0 {
		return stateAfterCall(n, r.Answers[n-1].Workspace)
	}
	for turn := len(r.Turns) - 1; turn >= 0; turn-- {
		if done, ok := r.Tools.Get(turn); ok {
			return stateAfter(turn, done.Workspace)
		}
		if laid := r.Laid(turn); laid != nil {
			return state{turn: turn, laid: true, workspace: laid.SHA256}
		}
	}
	return state{turn: -1}
}

func stateAfter(turn int, workspace *storage.Ref) state {
	if workspace == nil {
		return state{turn: turn}
	}
	return state{turn: turn, workspace: workspace.SHA256}
}

// stateAfterCall is how the n-th call of a harness left a workspace.
func stateAfterCall(n int, workspace *storage.Ref) state {
	left := stateAfter(-1, workspace)
	left.calls = n
	return left
}

// leased is a sandbox that belongs to a rollout.
type leased struct {
	*sandbox.Sandbox
	servers *toolserver.Sessions
	proxy   *egress.Proxy // nil without a network
	key     string
	left    state
	parts   *parts.Index // of the change that the log has last, nil where that has none
	idle    time.Time
	end     func()
}

// pool keeps one sandbox per rollout between its turns. A taken box belongs to its taker.
type pool struct {
	store   storage.Store
	opts    Options
	gateway *egress.Gateway
	endings *endings
	open    atomic.Int64 // sandboxes that are not ended
	mu      sync.Mutex
	boxes   map[string]*leased
	agents  map[string]chan struct{} // of rollouts whose agent runs here; closed when the rollout is over
}

func newPool(log eventlog.Reader, logger *slog.Logger, opts Options, gateway *egress.Gateway) *pool {
	h := &pool{store: log.Store(), opts: opts, gateway: gateway, boxes: map[string]*leased{},
		agents: map[string]chan struct{}{}}
	h.endings = newEndings(log, logger, h.release)
	return h
}

// take returns the rollout's sandbox with its workspace as the log has it: the held one when that
// is up to date, else a new one. The held one is not when another runner went on with the rollout
// in the meantime, or did the same turn with another result and was faster, or when a step of the
// task has brought files into the workspace.
func (h *pool) take(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec,
	r *events.Rollout) (*leased, error) {
	key, before := r.Run+"/"+r.ID, stateOf(r)
	if b := h.pop(key); b != nil {
		if b.left == before {
			return b, nil
		}
		b.end()
	}
	return h.make(ctx, cfg, task, r, nil, nil)
}

// make makes a sandbox of a rollout with its workspace as the log has it, for an agent with a way
// to its model and its own files.
func (h *pool) make(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec, r *events.Rollout, model Model,
	files []sandbox.Mount) (*leased, error) {
	key, before, way := r.Run+"/"+r.ID, stateOf(r), wayOut(h.gateway, cfg, task, r)
	if model != nil {
		way = way.toModel(h.gateway, model, r.Run)
	}
	sb, index, err := restoreParts(ctx, h.store, h.opts, task, r.ID, r.Workspace(), way, files...)
	for errors.Is(err, sandbox.ErrNoRoom) && h.giveUpIdle() {
		sb, index, err = restoreParts(ctx, h.store, h.opts, task, r.ID, r.Workspace(), way, files...)
	}
	if err != nil {
		return nil, err
	}
	proxy := way.serve(sb)
	unwatch := h.endings.watch(r.Run, r.Tail)
	servers := h.opts.sessions(sb, r.Run)
	return &leased{Sandbox: sb, parts: index, servers: servers, proxy: proxy, key: key,
		left: before, end: h.opened(func() {
			unwatch()
			servers.Close()
			proxy.Close()
			sb.Close()
		})}, nil
}

// opened counts a sandbox until it is ended.
func (h *pool) opened(end func()) (counted func()) {
	h.open.Add(1)
	return sync.OnceFunc(func() {
		end()
		h.open.Add(-1)
	})
}

// restore makes a rollout's sandbox from the task's snapshot and the workspace's change, nil for
// none, with a way to the network, nil for none.
func restore(ctx context.Context, store storage.Store, opts Options, task runfile.TaskSpec, rollout string,
	workspace *storage.Ref, way *way) (*sandbox.Sandbox, error) {
	sb, _, err := restoreParts(ctx, store, opts, task, rollout, workspace, way)
	return sb, err
}

// restoreParts also gives the index of the change's parts, nil where it is one object.
func restoreParts(ctx context.Context, store storage.Store, opts Options, task runfile.TaskSpec, rollout string,
	workspace *storage.Ref, way *way,
	files ...sandbox.Mount) (*sandbox.Sandbox, *parts.Index, error) {
	boxes, err := tasks.SandboxesOf(ctx, task, opts.Machine, store)
	if err != nil {
		return nil, nil, err
	}
	spec := boxes.Agent(rollout)
	spec.Mounts = append(slices.Clip(spec.Mounts), files...)
	way.describe(&spec)
	spec.Snapshot, err = opts.Snapshots.Use(ctx, task.Snapshot.SHA256,
		func(ctx context.Context) (io.ReadCloser, error) {
			from, err := storage.ReadBlob(ctx, store, task.Snapshot)
			if err != nil {
				err = fmt.Errorf("snapshot of task %s: %w", task.Name, err)
			}
			return from, err
		})
	if err != nil {
		return nil, nil, fmt.Errorf("sandbox of %s: %w", rollout, err)
	}
	defer spec.Snapshot.Release()
	sb, err := sandbox.New(ctx, spec)
	if err != nil {
		return nil, nil, fmt.Errorf("sandbox of %s: %w", rollout, err)
	}
	if workspace == nil {
		return sb, nil, nil
	}
	var index *parts.Index
	err = sb.ApplyFrom(ctx, func() (from io.ReadCloser, err error) {
		from, index, err = parts.Open(ctx, store, *workspace, opts.parts)
		return from, err
	})
	if err != nil {
		sb.Close()
		return nil, nil, fmt.Errorf("sandbox of %s: %w", rollout, fault.Mark(fmt.Errorf("workspace: %w", err)))
	}
	return sb, index, nil
}

// put gives a box back to be held for the next turn. The longest idle one makes room.
func (h *pool) put(b *leased) {
	h.mu.Lock()
	b.idle = time.Now()
	old := h.boxes[b.key]
	h.boxes[b.key] = b
	var evicted *leased
	if len(h.boxes) > cmp.Or(h.opts.Capacity, DefaultCapacity) {
		evicted = h.longestIdle(func(*leased) bool { return true })
		delete(h.boxes, evicted.key)
	}
	h.mu.Unlock()
	for _, b := range []*leased{old, evicted} {
		if b != nil {
			b.end()
		}
	}
}

// longestIdle is of the held boxes that fit the longest idle one, nil for none. The lock is held.
func (h *pool) longestIdle(fits func(*leased) bool) (found *leased) {
	for _, b := range h.boxes {
		if fits(b) && (found == nil || b.idle.Before(found.idle)) {
			found = b
		}
	}
	return found
}

// giveUpIdle ends the longest idle box that has a disk of its own, so that its room is free, and
// reports whether there was one.
func (h *pool) giveUpIdle() bool {
	h.mu.Lock()
	b := h.longestIdle((*leased).OnDisk)
	if b != nil {
		delete(h.boxes, b.key)
	}
	h.mu.Unlock()
	if b == nil {
		return false
	}
	b.end()
	return true
}

func (h *pool) pop(key string) *leased {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.boxes[key]
	delete(h.boxes, key)
	return b
}

// release ends the sandbox of a rollout that needs it no more.
func (h *pool) release(run, rollout string) {
	if b := h.pop(run + "/" + rollout); b != nil {
		b.end()
	}
	h.ranOut(run, rollout)
}

// running notes that a rollout's agent runs here, until done is called; nil where one runs already.
// The channel is closed when the rollout is over.
func (h *pool) running(run, rollout string) (over <-chan struct{}, done func()) {
	key := run + "/" + rollout
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.agents[key] != nil {
		return nil, nil
	}
	ends := make(chan struct{})
	h.agents[key] = ends
	return ends, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.agents[key] == ends {
			delete(h.agents, key)
		}
	}
}

// ranOut ends a rollout's agent, where one runs here.
func (h *pool) ranOut(run, rollout string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ends := h.agents[run+"/"+rollout]; ends != nil {
		close(ends)
		delete(h.agents, run+"/"+rollout)
	}
}

// expire ends sandboxes that stay idle.
func (h *pool) expire(ctx context.Context) {
	tick := time.NewTicker(idleAfter / 6)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, key := range h.idleSince(now.Add(-idleAfter)) {
				if b := h.pop(key); b != nil {
					b.end()
				}
			}
		}
	}
}

func (h *pool) idleSince(t time.Time) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var keys []string
	for key, b := range h.boxes {
		if b.idle.Before(t) {
			keys = append(keys, key)
		}
	}
	return keys
}

func (h *pool) closeAll() {
	for _, key := range h.idleSince(time.Now().Add(time.Hour)) {
		if b := h.pop(key); b != nil {
			b.end()
		}
	}
}
