package cli

import (
	"cmp"
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
)

// Main runs the program with the arguments of this process, and gives its exit code.
func Main() int {
	ctx, stop := interruptible(context.Background())
	defer stop()
	program, out := New(), app.NewOutput(os.Stdout)
	program.SetOut(out)
	cmd, err := program.ExecuteContextC(ctx)
	err = cmp.Or(plane.LostOr(cmd.Context(), err), out.Err())
	app.PrintError(os.Stderr, err, cmd.Flags().Lookup("json").Value.String() == "true" ||
		slices.Contains(os.Args, "--json"))
	return app.ExitCode(err)
}

// interruptible is a context that the first signal ends. A later one ends the process, whatever the
// command still waits for.
func interruptible(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) }) // as `timeout` sends a signal twice at once
	return ctx, stop
}
