package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
)

// Main runs the program with the arguments of this process, and gives its exit code.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd, err := New().ExecuteContextC(ctx)
	return app.ExitCode(plane.LostOr(cmd.Context(), err))
}
