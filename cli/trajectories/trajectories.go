// Package trajectories has the commands that list, show and export trajectories.
package trajectories

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/export"
)

// New is the command trajectories.
func New(g *app.Global) *cobra.Command {
	cmd := &cobra.Command{Use: "trajectories", Short: "List, show and export recorded rollouts"}
	cmd.AddCommand(newTrajectoriesList(g), newTrajectoriesShow(g), newTrajectoriesExport(g))
	return cmd
}

func newTrajectoriesList(g *app.Global) *cobra.Command {
	return &cobra.Command{
		Use: "list RUN", Short: "List the rollouts that have a trajectory file",
		Example: "  rondo trajectories list demo-1", Args: cobra.ExactArgs(1),
		RunE: plane.Command(g, func(cmd *cobra.Command, args []string, p *plane.Plane) error {
			if err := p.MustRun(cmd.Context(), args[0]); err != nil {
				return err
			}
			lines, err := export.Finished(cmd.Context(), p.Log.Reader, args[0])
			if err != nil {
				return err
			}
			if g.JSON {
				return app.PrintJSON(cmd.OutOrStdout(), lines)
			}
			w := app.NewColumns(cmd.OutOrStdout())
			fmt.Fprintln(w, "ROLLOUT\tTASK\tOUTCOME\tREWARD\tTURNS\tTOKENS\tSTOP\tFILE")
			for _, t := range lines {
				reward := "-"
				if t.Reward != nil {
					reward = fmt.Sprintf("%.3g", *t.Reward)
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", t.Rollout, app.Line(t.Task, 60), t.Outcome, reward,
					t.Turns, t.Tokens, app.Line(t.StopReason, 40), t.File.Key)
			}
			return w.Flush()
		}),
	}
}
