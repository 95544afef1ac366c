package scorer

import (
	"context"
	"fmt"
	"io/fs"
	"maps"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/storage"
)

// lay makes the workspace that the next step begins with, where the verdict lets it follow and it brings files along; else it is nil. It stands
// in the fact of the verdict, so that every runner has the same one, whatever setup.sh would do the next time.
func (s *Service) lay(ctx context.Context, cfg events.RunConfig, task events.TaskSpec, r *events.Rollout, verdict events.StepScored) (*storage.Ref, error) {
	next := verdict.Step + 1
	if next >= len(task.Steps) || task.Steps[next].Files == nil || !task.Steps[verdict.Step].Passes(verdict.Components) {
		return nil, nil
	}
	step, agents := task.Steps[next], task
	agents.Tests, agents.VerifierEnv, agents.Collect = storage.Ref{}, nil, nil // setup.sh is the agent's, and sees what agents see
	spec, err := s.spec(ctx, cfg, agents, r.ID, r.Steps[verdict.Step].Workspace)
	if err != nil {
		return nil, err
	}
	files, err := storage.GetBlob(ctx, s.log.Store(), *step.Files)
	if err != nil {
		return nil, fmt.Errorf("files of step %s of task %s: %w", step.Name, task.Name, err)
	}
	changes, err := verifier.Lay(ctx, spec, step.Name, files)
	if err != nil {
		return nil, err
	}
	ref, err := storage.PutBlob(ctx, s.log.Store(), changes)
	if err != nil {
		return nil, fmt.Errorf("store the workspace of step %s: %w", step.Name, err)
	}
	return &ref, nil
}

// begun describes the workspace that a step began with, path by path, where files were laid into it; else it is nil.
func (s *Service) begun(ctx context.Context, r *events.Rollout, step int) (map[string]string, error) {
	if step == 0 {
		return nil, nil
	}
	laid, err := s.workspace(ctx, r.Laid(r.StepBegin(step)))
	if err != nil {
		return nil, err
	}
	return sandbox.Contents(laid)
}

// workspace reads a workspace's change, nil for none.
func (s *Service) workspace(ctx context.Context, ref *storage.Ref) ([]byte, error) {
	if ref == nil {
		return nil, nil
	}
	data, err := storage.GetBlob(ctx, s.log.Store(), *ref)
	if err != nil {
		return nil, fmt.Errorf("workspace: %w", err)
	}
	return data, nil
}

// before is a path as it was when the agent was given it: its text, and whether anything was there.
type before struct {
	text  []byte
	there bool
}

// brought are the paths that the steps of a rollout have brought into its workspace, as they did. They are no work of the agent's.
func (s *Service) brought(ctx context.Context, r *events.Rollout, snapshot []byte) (map[string]before, error) {
	all := map[string]before{}
	for i, step := range r.Steps {
		if i == len(r.Steps)-1 || step.Verdict == nil || step.Verdict.Workspace == nil { // what the last one's verdict has laid was not begun with
			continue
		}
		left, err := s.workspace(ctx, step.Workspace)
		if err != nil {
			return nil, err
		}
		laid, err := s.workspace(ctx, step.Verdict.Workspace)
		if err != nil {
			return nil, err
		}
		if err := compareLaid(snapshot, left, laid, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// compareLaid adds the paths in which two workspaces differ, as the second has them.
func compareLaid(snapshot, left, laid []byte, all map[string]before) error {
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
