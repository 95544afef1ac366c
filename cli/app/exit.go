package app

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/rondo-rl/rondo/events/wording"
)

// ExitError carries the exit code of a command that did its work and found something. Without an error there is nothing to say.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// Found is the exit code of commands that looked for faults and found some.
const Found = 2

// ExitCode says how the command ended: 0 well, 1 failed, 2 found faults, 130 interrupted.
func ExitCode(err error) int {
	var e *ExitError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "rondo: interrupted")
		return 130
	case errors.As(err, &e) && e.Err == nil:
		return e.Code
	case errors.As(err, &e):
		fmt.Fprintln(os.Stderr, "rondo:", wording.Plain(err))
		return e.Code
	}
	fmt.Fprintln(os.Stderr, "rondo:", wording.Plain(err))
	return 1
}
