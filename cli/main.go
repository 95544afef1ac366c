package cli

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
)

// Main runs the program with the arguments of this process, and gives its exit code.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd, err := New().ExecuteContextC(ctx)
	err = plane.LostOr(cmd.Context(), err)
	app.PrintError(os.Stderr, err, cmd.Flags().Lookup("json").Value.String() == "true" || slices.Contains(os.Args, "--json"))
	return app.ExitCode(err)
}
