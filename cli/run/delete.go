package run

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events/eventlog"
)

func newRunDelete(g *app.Global) *cobra.Command {
	return &cobra.Command{
		Use: "delete RUN", Short: "Delete the stream of a closed run whose archive is complete",
		Long: `Delete frees what the run takes on the log's server. Nothing is lost: all commands read the archive from then on, and rondo
archive restore makes the stream again. It refuses a run that is open, or whose log goes on behind its archive.`,
		Example: "  rondo archive seal demo-1\n  rondo run delete demo-1", Args: cobra.ExactArgs(1),
		RunE: plane.RunCommand(g, func(cmd *cobra.Command, args []string, p *plane.Plane) error {
			if err := deleteRun(cmd.Context(), p.Log, args[0]); err != nil {
				return fmt.Errorf("delete run %s: %w", args[0], err)
			}
			return app.Tell(cmd, g, map[string]any{"run": args[0], "deleted": true},
				"the stream of run %s is deleted; its archive stays\n", args[0])
		}),
	}
}

func deleteRun(ctx context.Context, log *eventlog.Log, run string) error {
	last, err := log.Archive.Deletable(ctx, run)
	if err != nil {
		return err
	}
	return log.Streams.DeleteArchived(ctx, run, last)
}
