package toolrunner

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/storage"
)

// idleAfter is when a sandbox that no turn asked for is given back; the rollout's next turn gets a new one,
// restored from the log.
const idleAfter = time.Minute

// maxHeld bounds the idle sandboxes of one runner, at some megabytes each.
const maxHeld = 128

// box is a held sandbox.
type box struct {
	*sandbox.Sandbox
	key  string
	turn int // the last turn that ran in it, -1 for none
	idle time.Time
}

// held keeps one sandbox per rollout between its turns. A taken box belongs to its taker.
type held struct {
	store storage.Store
	opts  Options
	mu    sync.Mutex
	boxes map[string]*box
}

func newHeld(store storage.Store, opts Options) *held {
	return &held{store: store, opts: opts, boxes: map[string]*box{}}
}

// take returns the rollout's sandbox with its workspace as the last turn left it: the held one when that is up
// to date, else a new one.
func (h *held) take(ctx context.Context, task events.TaskSpec, r *events.Rollout) (*box, error) {
	before := -1
	if t := r.LastTools(); t != nil {
		before = t.Turn
	}
	if b := h.pop(r.Run + "/" + r.ID); b != nil {
		if b.turn == before {
			return b, nil
		}
		b.Close() // another runner went on with the rollout in the meantime
	}
	sb, err := h.restore(ctx, task, r)
	if err != nil {
		return nil, err
	}
	return &box{Sandbox: sb, key: r.Run + "/" + r.ID, turn: before}, nil
}

// restore makes a sandbox from the task's snapshot and the workspace's change.
func (h *held) restore(ctx context.Context, task events.TaskSpec, r *events.Rollout) (*sandbox.Sandbox, error) {
	spec := sandbox.Spec{Name: r.ID, Workdir: task.Workdir, Env: map[string]string{}, AllowInsecure: h.opts.AllowInsecure}
	spec.Limits.MemoryBytes = int64(task.MemoryMB) << 20
	maps.Copy(spec.Env, task.Env)
	mounts, env, err := sandbox.Toolchains(ctx, task.Toolchains, h.opts.ToolchainCache)
	if err != nil {
		return nil, err
	}
	spec.Mounts = mounts
	maps.Copy(spec.Env, env) // last: a task may not change where its toolchain is
	snapshot, err := storage.GetBlob(ctx, h.store, task.Snapshot)
	if err != nil {
		return nil, fmt.Errorf("snapshot of task %s: %w", task.Name, err)
	}
	var changes []byte
	if t := r.LastTools(); t != nil && t.Workspace != nil {
		if changes, err = storage.GetBlob(ctx, h.store, *t.Workspace); err != nil {
			return nil, fmt.Errorf("workspace of %s: %w", r.ID, err)
		}
	}
	sb, err := sandbox.New(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("sandbox of %s: %w", r.ID, err)
	}
	if err := fill(ctx, sb, task.Workdir, snapshot, changes); err != nil {
		sb.Close()
		return nil, fmt.Errorf("sandbox of %s: %w", r.ID, err)
	}
	return sb, nil
}

func fill(ctx context.Context, sb *sandbox.Sandbox, workdir string, snapshot, changes []byte) error {
	if err := sb.Unpack(ctx, workdir, snapshot); err != nil {
		return err
	}
	if err := sb.SetBase(ctx); err != nil || changes == nil {
		return err
	}
	return sb.Apply(ctx, changes)
}

// put gives a box back to be held for the next turn. The longest idle one makes room.
func (h *held) put(b *box) {
	h.mu.Lock()
	b.idle = time.Now()
	old := h.boxes[b.key]
	h.boxes[b.key] = b
	var evicted *box
	if len(h.boxes) > maxHeld {
		for _, other := range h.boxes {
			if evicted == nil || other.idle.Before(evicted.idle) {
				evicted = other
			}
		}
		delete(h.boxes, evicted.key)
	}
	h.mu.Unlock()
	for _, b := range []*box{old, evicted} {
		if b != nil {
			b.Close()
		}
	}
}

func (h *held) pop(key string) *box {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.boxes[key]
	delete(h.boxes, key)
	return b
}

// release ends the sandbox of a rollout that needs it no more.
func (h *held) release(run, rollout string) {
	if b := h.pop(run + "/" + rollout); b != nil {
		b.Close()
	}
}

// expire ends sandboxes that stay idle.
func (h *held) expire(ctx context.Context) {
	tick := time.NewTicker(idleAfter / 6)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, key := range h.idleSince(now.Add(-idleAfter)) {
				if b := h.pop(key); b != nil {
					b.Close()
				}
			}
		}
	}
}

func (h *held) idleSince(t time.Time) []string {
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

func (h *held) closeAll() {
	for _, key := range h.idleSince(time.Now().Add(time.Hour)) {
		if b := h.pop(key); b != nil {
			b.Close()
		}
	}
}
