package verifier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
)

// What a stage of a task may bring along beside files: a program that is run in the workspace once
// they are laid, and removed.
const (
	SetupScript  = "setup.sh"
	SetupTimeout = 60 * time.Second
)

// setup runs the script where it lies, as a program that looks for itself expects.
const setup = `if command -v bash >/dev/null 2>&1; then bash ./` + SetupScript + `; else sh ./` + SetupScript +
	`; fi; code=$?; rm -rf ./` + SetupScript + `; exit $code`

// Apply unpacks the files of a stage, an archive of sandbox.Pack, over the workspace that a
// spec names, runs their setup.sh, and answers the workspace's change then; without a byte
// where it is the snapshot again. This happens in a sandbox of its own, of the agent's kind
// and with its variables: the spec's tests, hooks and protected paths play no part. Its error
// is an *Error, or of ctx.
func Apply(ctx context.Context, spec Spec, stage string, files []byte) ([]byte, error) {
	changes, err := apply(ctx, spec, stage, files)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return nil, fmt.Errorf("apply the files of stage %s: %w", stage, cause)
	}
	return changes, err
}

func apply(ctx context.Context, spec Spec, stage string, files []byte) ([]byte, error) {
	brought, err := sandbox.Contents(sandbox.Bytes(files))
	if err != nil {
		return nil, layError(stage, err)
	}
	sb, err := open(ctx, spec)
	if err != nil {
		return nil, err
	}
	defer sb.Close()
	if err := sb.Apply(ctx, files); err != nil {
		return nil, layError(stage, err)
	}
	if _, ok := brought[SetupScript]; ok {
		result, err := sb.Exec(ctx, sandbox.Command{Argv: []string{"sh", "-c", setup},
			Env: spec.Env, Wall: SetupTimeout})
		if err != nil {
			return nil, &Error{Class: ClassSandbox, Err: fmt.Errorf("%s of stage %s: %w", SetupScript, stage, err)}
		}
		if err := setupError(stage, result); err != nil {
			return nil, err
		}
	}
	changes, err := sb.Changes(ctx)
	if err != nil {
		return nil, layError(stage, err)
	}
	return changes, nil
}

// open makes a sandbox of the agent's kind with the workspace that a spec names.
func open(ctx context.Context, spec Spec) (*sandbox.Sandbox, error) {
	sb, err := sandbox.New(ctx, spec.sandbox(sandbox.RoleAgent))
	if err != nil {
		return nil, &Error{Class: ClassSandbox, Err: err}
	}
	if err := errors.Join(sb.UnpackFrom(ctx, sb.Workdir(), spec.Snapshot), sb.SetBase(ctx)); err != nil {
		sb.Close()
		return nil, &Error{Class: ClassSandbox, Err: fmt.Errorf("lay out the snapshot: %w", err)}
	}
	if err := sb.ApplyFrom(ctx, spec.Changes); err != nil {
		sb.Close()
		return nil, applyError(err)
	}
	return sb, nil
}

// layError says that a stage's files do not fit into the workspace, unless the sandbox failed.
func layError(stage string, err error) error {
	class := ClassSetup
	if errors.Is(err, sandbox.ErrClosed) {
		class = ClassSandbox
	}
	return &Error{Class: class, Err: fmt.Errorf("apply the files of stage %s: %w", stage, err)}
}

// setupError says how a setup.sh failed; nil when it did not.
func setupError(stage string, result sandbox.Result) error {
	var why string
	switch {
	case result.TimedOut:
		why = fmt.Sprintf("timed out after %v", SetupTimeout)
	case result.OutOfMemory && result.ExitCode != 0:
		why = fmt.Sprintf("exit %d: out of memory", result.ExitCode)
	case result.ExitCode != 0:
		why = fmt.Sprintf("exit %d", result.ExitCode)
	default:
		return nil
	}
	return &Error{Class: ClassSetup, Err: fmt.Errorf("%s of stage %s: %s", SetupScript, stage, why),
		Log: append(result.Stdout, result.Stderr...)}
}
