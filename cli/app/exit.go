package app

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rondo-rl/rondo/wording"
)

// ExitError carries the exit code of a command that did its work and found something. Without an
// error there is nothing to say.
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

// ExitFindings is the exit code of commands that looked for faults and found some.
const ExitFindings = 2

// ExitCode says how the command ended: 0 well, 1 failed, 2 found faults, 130 interrupted.
func ExitCode(err error) int {
	var e *ExitError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled):
		return 130
	case errors.As(err, &e):
		return e.Code
	}
	return 1
}

// PrintError writes why a command failed, as JSON for a command that prints JSON.
func PrintError(w io.Writer, err error, asJSON bool) {
	var e *ExitError
	switch {
	case err == nil, errors.As(err, &e) && e.Err == nil:
		return
	}
	text := wording.Clean(wording.Plain(err).Error())
	if errors.Is(err, context.Canceled) {
		text = "interrupted"
	}
	if asJSON {
		_ = PrintJSON(w, map[string]any{"error": text, "code": ExitCode(err)})
		return
	}
	fmt.Fprintln(w, "rondo:", text)
}
