package verifier

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
)

// Hook is a command with the time that it may take.
type Hook struct {
	Command string
	Timeout time.Duration
}

// shell runs the command that is its first argument, with bash where there is one.
const shell = `if command -v bash >/dev/null 2>&1; then exec bash -c "$1"; else exec sh -c "$1"; fi`

// collect runs a task's hooks over the agent's final workspace, in a sandbox of their own in
// which there are no tests, and answers the workspace's change after them with what they
// wrote. A hook that fails is told there, and stops nothing: what it should have made is
// missing, and the tests judge that.
func collect(ctx context.Context, spec Spec) (changes sandbox.Source, log []byte, err error) {
	sb, err := open(ctx, spec)
	if err != nil {
		return nil, nil, err
	}
	defer sb.Close()
	env := maps.Clone(environment)
	maps.Copy(env, spec.Env)
	var said bytes.Buffer
	for i, hook := range spec.Collect {
		result, err := sb.Exec(ctx, sandbox.Command{Argv: []string{"sh", "-c", shell, "sh", hook.Command},
			Env: env, Wall: hook.Timeout})
		if err != nil {
			return nil, nil, &Error{Class: ClassSandbox, Err: fmt.Errorf("collect hook %d: %w", i+1, err)}
		}
		fmt.Fprintf(&said, "collect hook %d: exit %d\n%s%s", i+1, result.ExitCode, result.Stdout, result.Stderr)
	}
	left, err := sb.Changes(ctx) // at most sandbox.MaxChange
	if err != nil {
		return nil, nil, applyError(err)
	}
	return sandbox.Bytes(left), said.Bytes(), nil
}
