package intake

import (
	"context"
	"errors"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// Bounds of a call beyond its schema, in bytes.
const (
	maxCommand  = 128 << 10 // of a command's words and its variables; the kernel takes about as much
	maxVariable = 128
)

// admitCalled checks a harness's call on the workspace of its rollout. That no other one is under
// way is checked with the chain.
func (s *Service) admitCalled(ctx context.Context, r *events.Rollout, p *events.WorkspaceCalled) error {
	if _, err := s.workspaceTask(ctx, r); err != nil {
		return err
	}
	if len(r.Calls) >= events.MaxWorkspaceCalls {
		return refuse("rollout %s has had %d calls, as many as there may be", r.ID, len(r.Calls))
	}
	size := 0
	for _, word := range p.Command {
		size += len(word)
	}
	for name, value := range p.Env {
		size += len(name) + len(value)
		if name == "" || len(name) > maxVariable || strings.ContainsAny(name, "=\x00") ||
			strings.ContainsRune(value, 0) {
			return refuse("env: %.40q is no variable", name)
		}
	}
	exec := p.Op == events.WorkspaceExec
	switch {
	case p.Op == events.WorkspaceAgent:
		return refuse("op %s: only Rondo itself starts a run's agent", p.Op)
	case size > maxCommand:
		return refuse("command and env: %d bytes, at most %d", size, maxCommand)
	case exec && (len(p.Command) == 0 || p.Command[0] == ""):
		return refuse("command: it is empty")
	case !exec && (p.Path == "" || strings.ContainsRune(p.Path, 0)):
		return refuse("path %.100q: name a file", p.Path)
	}
	for field, content := range map[string]*events.Content{"stdin": p.Stdin, "content": p.Content} {
		if content == nil {
			continue
		}
		if err := s.admitBlob(ctx, harness(r.Run), field, content.Blob, events.MaxWorkspaceContent); err != nil {
			return err
		}
	}
	return nil
}

// workspaceTask is the task of a rollout that can have a workspace of Rondo's.
func (s *Service) workspaceTask(ctx context.Context, r *events.Rollout) (runfile.TaskSpec, error) {
	task, err := s.log.Task(ctx, r.Run, r.Started.Task)
	switch {
	case errors.Is(err, runfile.ErrNoTask):
		return task, refuse("task %.100q: run %s does not have it, so rollout %s has no workspace here", r.Started.Task,
			r.Run, r.ID)
	case err != nil:
		return task, err
	case task.Snapshot.Key == "":
		return task, refuse("task %.100q has no snapshot, so rollout %s has no workspace", r.Started.Task, r.ID)
	case len(task.Steps) > 0:
		return task, refuse("task %.100q has stages, which Rondo's own rollouts alone can have", r.Started.Task)
	}
	return task, nil
}

// callRoute says which tool runners may take a call.
func (s *Service) callRoute(ctx context.Context, fact events.Event) (string, error) {
	r, err := s.log.Rollout(ctx, fact.Run, fact.Entity)
	if err != nil {
		return "", err
	}
	cfg, err := s.log.Config(ctx, fact.Run)
	if err != nil {
		return "", err
	}
	task, err := s.workspaceTask(ctx, &r)
	return r.CallRoute(cfg.Pool, task.Needs()), err
}

// admitVerify checks that the end of a rollout leaves its verifier what the tool runners have made,
// and that there is a verifier.
func (s *Service) admitVerify(ctx context.Context, r *events.Rollout, p *events.RolloutFinished) error {
	if now := r.Workspace(); len(r.Answers) > 0 && p.Workspace != nil && (now == nil || *p.Workspace != *now) {
		return refuse("workspace: the tool runners have left another one: repeat that of the last answer, or state none")
	}
	if !p.Verify {
		return nil
	}
	task, err := s.workspaceTask(ctx, r)
	switch {
	case err != nil:
		return err
	case !task.HasVerifier():
		return refuse("verify: task %.100q has no tests", r.Started.Task)
	case len(r.Answers) > 0 && p.Workspace == nil && r.Workspace() != nil:
		return refuse("workspace: repeat that of the last answer, which is verified")
	}
	return nil
}
