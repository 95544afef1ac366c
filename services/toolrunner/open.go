package toolrunner

import (
	"context"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/storage"
)

// Open makes a sandbox with the workspace as a turn of a rollout left it, and with the toolchains
// and the environment of its task. Nothing that is done there reaches the rollout.
func Open(ctx context.Context, store storage.Store, opts Options, task runfile.TaskSpec, r *events.Rollout,
	turn int) (*sandbox.Sandbox, error) {
	workspace, err := r.WorkspaceAfter(turn)
	if err != nil {
		return nil, err
	}
	return restore(ctx, store, opts, task, r.ID, workspace, nil)
}
