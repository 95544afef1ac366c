package scorer

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/fault"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/parts"
)

// nextWorkspace makes the workspace that the next stage begins with, if the verdict lets it follow
// and it has files of its own; otherwise it is nil. The event of the verdict has it, so that every
// runner has the same one, whatever setup.sh would do the next time. Where the files fit over the
// snapshot, but not over what the agent has left, the rollout is forfeited.
func (s *Service) nextWorkspace(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec, r *events.Rollout,
	verdict events.StepScored) (*storage.Ref, *events.Forfeit, error) {
	next := verdict.Step + 1
	if next >= len(task.Steps) || task.Steps[next].Files == nil || verdict.Forfeit != nil ||
		!task.Steps[verdict.Step].Passes(verdict.Components) {
		return nil, verdict.Forfeit, nil
	}
	stage, agents := task.Steps[next], task
	// setup.sh is the agent's, and sees what agents see
	agents.Tests, agents.VerifierEnv, agents.Collect = storage.Ref{}, nil, nil
	spec, err := s.spec(ctx, cfg, agents, r.ID, r.Steps[verdict.Step].Workspace)
	if err != nil {
		return nil, nil, err
	}
	files, err := storage.GetBlob(ctx, s.store, *stage.Files)
	if err != nil {
		return nil, nil, fmt.Errorf("files of stage %s of task %s: %w", stage.Name, task.Name, err)
	}
	changes, err := verifier.Apply(ctx, spec, stage.Name, files)
	if class := fault.ClassOf(err); class != "" && ctx.Err() == nil {
		spec.Changes = nil
		if _, broken := verifier.Apply(ctx, spec, stage.Name, files); broken != nil {
			return nil, nil, brokenTests(broken, err)
		}
		return nil, forfeit(class, err), nil
	}
	if err != nil {
		return nil, nil, err
	}
	ref, err := storage.PutBlob(ctx, s.store, changes)
	if err != nil {
		return nil, nil, fmt.Errorf("store the workspace of stage %s: %w", stage.Name, err)
	}
	return &ref, nil, nil
}

// begun describes the workspace that a stage began with, path by path, where files were laid
// into it; else it is nil.
func (s *Service) begun(ctx context.Context, r *events.Rollout, stage int) (map[string]string, error) {
	if stage == 0 {
		return nil, nil
	}
	return sandbox.Contents(s.workspace(ctx, r.Laid(r.StepBegin(stage))))
}

// workspace is a workspace's change, nil for none.
func (s *Service) workspace(ctx context.Context, ref *storage.Ref) sandbox.Source {
	if ref == nil {
		return nil
	}
	return func() (io.ReadCloser, error) {
		from, _, err := parts.Open(ctx, s.store, *ref, s.parts)
		if err != nil {
			err = fmt.Errorf("workspace: %w", err)
		}
		return from, err
	}
}

// originalFile is a path as it was when the agent was given it: its text, and
// whether anything was there.
type originalFile struct {
	text  []byte
	there bool
}

// brought are the paths that the stages of a rollout have brought into its workspace, as they did.
// They are no work of the agent's.
func (s *Service) brought(ctx context.Context, r *events.Rollout,
	snapshot sandbox.Source) (map[string]originalFile, error) {
	all := map[string]originalFile{}
	for i, stage := range r.Steps {
		// what the last one's verdict has laid was not begun with
		if i == len(r.Steps)-1 || stage.Verdict == nil || stage.Verdict.Workspace == nil {
			continue
		}
		left, laid := s.workspace(ctx, stage.Workspace), s.workspace(ctx, stage.Verdict.Workspace)
		if err := compareApplied(snapshot, left, laid, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// compareApplied adds the paths in which two workspaces differ, as the second has them.
func compareApplied(snapshot, left, laid sandbox.Source, all map[string]originalFile) error {
	was, err := sandbox.Contents(left)
	if err != nil {
		return err
	}
	is, err := sandbox.Contents(laid)
	if err != nil {
		return err
	}
	tree, err := sandbox.Tree(maxEdited, snapshot, laid)
	if err != nil {
		return err
	}
	paths := maps.Clone(was)
	maps.Copy(paths, is)
	for name := range paths {
		if was[name] == is[name] || !fs.ValidPath(name) {
			continue
		}
		found, err := beforeIn(tree, name)
		if err != nil {
			return err
		}
		all[name] = found
	}
	return nil
}
