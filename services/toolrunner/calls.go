package toolrunner

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/outage"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/fault"
	"github.com/rondo-rl/rondo/sandbox/tools"
	"github.com/rondo-rl/rondo/sandbox/toolset"
	"github.com/rondo-rl/rondo/wording"
)

// A harness of one's own works in its rollout's sandbox by calls, which stand on the rollout's
// chain. They are answered as a turn's are: the log has every workspace that the harness went on
// with, and a sandbox that is gone is made again from it.

// maxFile bounds the files of which a harness can read a part, in bytes.
const maxFile = 64 << 20

// call answers the harness's call that is under way.
func (s *Service) call(ctx context.Context, log eventlog.Reader, cfg runfile.RunConfig, task runfile.TaskSpec,
	r *events.Rollout) ([]events.Event, error) {
	key := r.CallUnderWay().Key
	answer, err := s.answer(ctx, cfg, task, r)
	if err != nil {
		s.held.release(r.Run, r.ID)
		if ctx.Err() != nil {
			return nil, err
		}
		theirs, waits := s.agents(ctx, cfg, task, r, err)
		if waits != nil {
			return nil, waits
		}
		if !theirs {
			return again(cfg, r, err)
		}
		loseCall(&answer, r, err)
		answer.Runner = s.runner
	}
	// The harness's other requests may have been recorded in the meantime: the
	// answer stands behind them.
	now, err := log.Rollout(ctx, r.Run, r.ID)
	if err != nil {
		return nil, err
	}
	if under := now.CallUnderWay(); now.Over() || under == nil || under.Key != key {
		s.held.release(r.Run, r.ID)
		return nil, nil
	}
	fact, err := now.Next(events.WorkspaceAnsweredType, key, answer)
	return []events.Event{fact}, err
}

// answer does what a call asks for, and stores the workspace's change.
func (s *Service) answer(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec,
	r *events.Rollout) (done events.WorkspaceAnswered, err error) {
	box, err := s.lease(ctx, cfg, task, r)
	if err != nil {
		return done, err
	}
	defer func() { s.giveBack(box, done.Lost) }()
	call := r.CallUnderWay()
	done = events.WorkspaceAnswered{Runner: s.runner, Isolation: box.Isolation(), Filesystem: box.FSMode(),
		StartedAt: time.Now().UTC()}
	output, stderr, err := s.do(ctx, box.Sandbox, call.WorkspaceCalled, r.ToolTimeLeft(cfg.Limits), &done)
	done.DurationMS = milliseconds(time.Since(done.StartedAt))
	if err != nil {
		return done, fmt.Errorf("%s of %s: %w", call.Op, r.ID, fault.Ended(err))
	}
	if err := s.keepOutput(ctx, cfg, &done, output, stderr); err != nil {
		return done, fmt.Errorf("%s of %s: %w", call.Op, r.ID, err)
	}
	if done.Network, err = fetched(ctx, cfg, box.proxy); err != nil {
		return done, err
	}
	if done.Workspace = r.Workspace(); call.Op == events.WorkspaceRead { // nothing is changed
		box.left = stateAfterCall(len(r.Answers)+1, done.Workspace)
		return done, nil
	}
	err = outage.Outlast(ctx, func() (err error) { done.Workspace, err = s.saveWorkspace(ctx, box); return err })
	if err != nil {
		err = fmt.Errorf("store workspace of %s: %w", r.ID, err)
		if fault.ClassOf(err) == "" || ctx.Err() != nil {
			return done, err
		}
		loseCall(&done, r, err)
		return done, nil
	}
	box.left = stateAfterCall(len(r.Answers)+1, done.Workspace)
	return done, nil
}

// do runs a call in the sandbox, and gives what it wrote or read. What cannot be done by the
// harness's own doing is said in done.
func (s *Service) do(ctx context.Context, box *sandbox.Sandbox, call events.WorkspaceCalled, left time.Duration,
	done *events.WorkspaceAnswered) (output, stderr []byte, err error) {
	if left <= 0 {
		done.Refused = "the run's time for tools is used up"
		return nil, nil, nil
	}
	switch call.Op {
	case events.WorkspaceExec:
		output, stderr, err = s.exec(ctx, box, call, left, done)
	case events.WorkspaceRead:
		output, err = readPart(ctx, box, call, done)
	case events.WorkspaceWrite:
		var content []byte
		if content, err = call.Content.Get(ctx, s.store); err != nil {
			return nil, nil, fmt.Errorf("content of %s: %w", call.Path, err)
		}
		done.StartedAt = time.Now().UTC() // to read the store was not the call's time
		err = box.WriteFile(ctx, call.Path, content, fs.FileMode(call.Mode))
	default:
		done.Refused = fmt.Sprintf("this tool runner knows no %.40q", call.Op)
	}
	if why := tools.InsideFault(err); err != nil && why != "" && ctx.Err() == nil {
		done.Refused = why
		return nil, nil, nil
	}
	return output, stderr, err
}

func (s *Service) exec(ctx context.Context, box *sandbox.Sandbox, call events.WorkspaceCalled, left time.Duration,
	done *events.WorkspaceAnswered) (output, stderr []byte, err error) {
	stdin, err := call.Stdin.Get(ctx, s.store)
	if err != nil {
		return nil, nil, fmt.Errorf("stdin: %w", err)
	}
	wall := min(left, time.Duration(call.TimeoutMS)*time.Millisecond)
	if call.TimeoutMS == 0 {
		wall = min(left, sandbox.DefaultWall)
	}
	done.StartedAt = time.Now().UTC() // to read the store was not the command's time
	ran, err := box.Exec(ctx, sandbox.Command{Argv: call.Command, Dir: call.Dir, Env: call.Env, Stdin: stdin,
		Wall: max(wall, time.Millisecond)})
	if err != nil {
		return nil, nil, err
	}
	done.ExitCode, done.TimedOut, done.DroppedBytes = &ran.ExitCode, ran.TimedOut, ran.DroppedBytes
	done.StartedAt = done.StartedAt.Add(ran.Starved)
	return ran.Stdout, ran.Stderr, nil
}

// readPart is the part of a file that a call asks for.
func readPart(ctx context.Context, box *sandbox.Sandbox, call events.WorkspaceCalled,
	done *events.WorkspaceAnswered) ([]byte, error) {
	data, err := box.ReadFile(ctx, call.Path, maxFile)
	if err != nil {
		return nil, err
	}
	size := int64(len(data))
	done.Size = &size
	from := min(call.Offset, size)
	limit := call.Limit
	if limit == 0 {
		limit = events.MaxWorkspaceContent
	}
	return data[from : from+min(limit, size-from)], nil
}

// keepOutput stores what a call wrote or read, where the run wants that without secrets. What
// is no text stays as it is.
func (s *Service) keepOutput(ctx context.Context, cfg runfile.RunConfig, done *events.WorkspaceAnswered, output,
	stderr []byte) (err error) {
	output, stderr = []byte(wording.Clean(string(output))), []byte(wording.Clean(string(stderr)))
	if cfg.Has(runfile.FeatureRedactSecrets) {
		texts := []events.ToolResult{{Content: string(output)}, {Content: string(stderr)}}
		if done.Redacted, err = redactResults(ctx, texts, &toolset.State{}, redactWithin); err != nil {
			return err
		}
		for rule, n := range done.Redacted {
			s.redacted.WithLabelValues(rule).Add(float64(n))
		}
		output, stderr = []byte(texts[0].Content), []byte(texts[1].Content)
		done.DroppedBytes += texts[0].DroppedBytes + texts[1].DroppedBytes
	}
	store := s.store
	if done.Output, err = events.PutContent(ctx, store, output); err != nil {
		return fmt.Errorf("store what it wrote: %w", err)
	}
	if done.Errors, err = events.PutContent(ctx, store, stderr); err != nil {
		return fmt.Errorf("store what it wrote: %w", err)
	}
	return nil
}

// loseCall lets a call end with the workspace that the one before it left.
func loseCall(done *events.WorkspaceAnswered, r *events.Rollout, err error) {
	done.Lost = reason(fault.ClassOf(err), err)
	done.Workspace = r.Workspace()
	if done.StartedAt.IsZero() {
		done.StartedAt = time.Now().UTC()
	}
	// there was no sandbox: the workspace before the call does not fit into one
	if n := len(r.Answers); done.Isolation == "" && n > 0 {
		done.Isolation, done.Filesystem = r.Answers[n-1].Isolation, r.Answers[n-1].Filesystem
	}
}
