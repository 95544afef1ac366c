package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/rondo-rl/rondo/retry"
)

// Command is any server that a command of the operator brings to a version, mostly by starting it
// again. The command has RONDO_POLICY, RONDO_VERSION and RONDO_WEIGHTS, the folder of the files, in
// its environment, and ends with 0 when the server is to answer with them.
type Command struct {
	args   []string
	health *client // nil where nobody can ask the server

	mu     sync.Mutex
	loaded string // what the command has done since the server was last away
}

// NewCommand runs a program with its arguments, without a shell. base is the server's address,
// whose /health tells when it is ready; "" asks nobody.
func NewCommand(args []string, base, key string, transport http.RoundTripper) (*Command, error) {
	if len(args) == 0 {
		return nil, errors.New("there is no command that loads weights")
	}
	if base == "" {
		return &Command{args: args}, nil
	}
	c, err := newClient(base, key, transport)
	return &Command{args: args, health: c}, err
}

// Label implements [Engine]. A server that is away, or still loads, comes back with nobody knows
// which weights. Where nobody listens it serves none: the command may be all that starts it.
func (e *Command) Label(ctx context.Context) (string, error) {
	err := e.healthy(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		e.loaded = ""
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "", nil
	}
	return e.loaded, err
}

func (e *Command) healthy(ctx context.Context) error {
	if e.health == nil {
		return nil
	}
	return e.health.ask(ctx, controlTime, "/health", nil, nil)
}

// starting is how often a server that starts is asked whether it is ready.
var starting = retry.Policy{First: 250 * time.Millisecond, Most: 2 * time.Second}

// Load implements [Engine].
func (e *Command) Load(ctx context.Context, v Version) error {
	ctx, cancel := context.WithTimeout(ctx, loadTime)
	defer cancel()
	e.note("")
	cmd := exec.CommandContext(ctx, e.args[0], e.args[1:]...)
	cmd.Env = append(os.Environ(), "RONDO_POLICY="+v.Policy, "RONDO_VERSION="+v.Label(), "RONDO_WEIGHTS="+v.Dir)
	// Straight to the side-car's own: a server that the command leaves behind may hold it for ever.
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", e.args[0], err)
	}
	for try := 1; ; try++ {
		err := e.healthy(ctx)
		if err == nil {
			e.note(v.Label())
			return nil
		}
		if !starting.Wait(ctx, try) {
			return fmt.Errorf("%s has ended, and the server is not ready: %w", e.args[0], err)
		}
	}
}

func (e *Command) note(label string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.loaded = label
}

// Refuse implements [Engine].
func (e *Command) Refuse(context.Context, Version) error {
	e.note("")
	return nil
}

// Resume implements [Engine].
func (e *Command) Resume(context.Context) error { return nil }

// Logprobs implements [Engine].
func (e *Command) Logprobs(context.Context, []int32) ([]float64, error) { return nil, ErrNoLogprobs }
