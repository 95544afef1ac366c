package toolrunner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/outage"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/fault"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/wording"
)

// A turn is lost when the agent's own doing left nothing that can be kept: a workspace that is too
// large, or a sandbox that did not survive. The rollout goes on with the workspace of the turn
// before, and the model is told. So the log has every workspace that a rollout ever went on with,
// and no agent ends its rollout without a reward by breaking its sandbox.

// reason is what is said of a lost turn, by its class.
func reason(class string, err error) string {
	const most = 600 // bytes
	text := wording.Plain(err).Error()
	if len(text) > most {
		text = text[:most] + "…"
	}
	switch class {
	case verifier.ClassMemory:
		return "the sandbox ran out of memory: " + text
	case fault.ClassWorkspace:
		return fmt.Sprintf("the workspace cannot be stored (its change may have as many bytes as the sandbox's disk, at most %d GiB, and %d entries): %s",
			sandbox.MaxBytes>>30, sandbox.MaxFiles, text)
	}
	return "the sandbox ended: " + text
}

// notice is what the model reads of a lost turn.
func notice(why string) string {
	return "error: nothing that this turn did is kept. The workspace, the shell and its variables are as they were before the turn, and background processes are gone. The reason: " + why
}

// agents reports whether a turn failed by the agent's doing. A sandbox that ends without a reason
// is tried again first; when that was the last try, a sandbox with the workspace before the turn
// shows whether the machine can run it. The error is of an outage, in which nobody can tell.
func (s *Service) agents(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec, r *events.Rollout,
	err error) (bool, error) {
	if outage.KindOf(err) != "" {
		return false, err
	}
	if fault.ClassOf(err) != "" {
		return true, nil
	}
	if !fault.Unclear(err) || r.Tries+1 < cfg.Limits.Tries {
		return false, nil
	}
	err = s.tryWorkspace(ctx, task, r)
	if outage.KindOf(err) != "" {
		return false, err
	}
	return err == nil, nil
}

// errTrial says that a sandbox did not run the simplest command.
var errTrial = errors.New("a sandbox with the workspace before the turn runs nothing")

// tryWorkspace makes a sandbox with the workspace before the turn, and lets it run something.
func (s *Service) tryWorkspace(ctx context.Context, task runfile.TaskSpec, r *events.Rollout) error {
	box, err := restore(ctx, s.held.store, s.opts, task, r.ID, r.Workspace(), nil)
	if err != nil {
		return err
	}
	defer box.Close()
	ended, err := box.Exec(ctx, sandbox.Command{Argv: []string{"true"}})
	if err == nil && ended.ExitCode != 0 {
		err = errTrial
	}
	if err == nil {
		_, err = box.Changes(ctx)
	}
	return err
}

// answerLost answers the calls of a turn of which nothing came back but the kind of its sandbox.
func (s *Service) answerLost(r *events.Rollout, done events.ToolsCompleted, err error) events.ToolsCompleted {
	last, now := r.LastTurn(), time.Now().UTC()
	done.Turn, done.Runner = last.Turn, s.runner
	// there was no sandbox: the workspace before the turn does not fit into one
	if before := r.LastTools(); done.Isolation == "" && before != nil {
		done.Isolation, done.Filesystem = before.Isolation, before.Filesystem
	}
	for _, call := range last.ToolCalls {
		done.Results = append(done.Results, events.ToolResult{CallID: call.ID, Name: call.Name,
			Content: "error: its answer is lost", Error: true, StartedAt: now})
	}
	lose(&done, r, fault.ClassOf(err), err)
	return done
}

// lose lets a turn end with what the one before left.
func lose(done *events.ToolsCompleted, r *events.Rollout, class string, err error) {
	done.Lost = reason(class, err)
	done.Workspace, done.State = r.Workspace(), nil
	if before := toolState(r); before.OrNil() != nil {
		done.State = before.OrNil()
	}
	last := &done.Results[len(done.Results)-1]
	last.Error = true
	if last.Content != "" {
		last.Content += "\n"
	}
	last.Content += notice(done.Lost)
}
