package episode

import (
	"context"
	"fmt"
	"io"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/difference"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/parts"
)

// mostCompared bounds what is read of a workspace's change, or of a snapshot, in bytes.
const mostCompared = 256 << 20

// ErrLargeWorkspace means that a workspace is larger than what is compared.
var ErrLargeWorkspace = fmt.Errorf("the workspace has more than %d MiB", mostCompared>>20)

// Changes is what differs between two moments of a workspace, nil for the task's snapshot. more
// counts the files that are left out.
func Changes(ctx context.Context, store storage.Store, snapshot storage.Ref, before, after *storage.Ref,
	most difference.Bounds) (files []difference.File, more int, err error) {
	stored := func(ref *storage.Ref) sandbox.Source {
		if ref == nil || ref.Key == "" {
			return nil
		}
		return func() (io.ReadCloser, error) {
			from, _, err := parts.Open(ctx, store, *ref, nil)
			if err != nil {
				return nil, err
			}
			return &bounded{from, mostCompared}, nil
		}
	}
	return difference.Compare(stored(&snapshot), stored(before), stored(after), most)
}

// LastWorkspace is the workspace that a rollout has left, as far as it has come;
// nil is the task's snapshot.
func LastWorkspace(r *events.Rollout) *storage.Ref {
	if r.Finished != nil && r.Finished.Workspace != nil {
		return r.Finished.Workspace
	}
	return r.Workspace()
}

// bounded fails where more is read than it has left.
type bounded struct {
	io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, ErrLargeWorkspace
	}
	return n, err
}
