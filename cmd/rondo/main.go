// Command rondo is the rollout plane in one binary: the demo, the embedded plane, each service by its name,
// and the tools that look into a run.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	os.Exit(exitCode(err))
}

// exitError carries the exit code of a command that did its work and found something. Without an error there is nothing to say.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}
func (e *exitError) Unwrap() error { return e.err }

// found is the exit code of commands that looked for faults and found some.
const found = 2

// exitCode says how the command ended: 0 well, 1 failed, 2 found faults, 130 interrupted.
func exitCode(err error) int {
	var e *exitError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "rondo: interrupted")
		return 130
	case errors.As(err, &e) && e.err == nil:
		return e.code
	case errors.As(err, &e):
		fmt.Fprintln(os.Stderr, "rondo:", err)
		return e.code
	}
	fmt.Fprintln(os.Stderr, "rondo:", err)
	return 1
}
