// Package dashboard is the command that prints the dashboard's link.
package dashboard

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/service"
)

// New makes the command `rondo dashboard`.
func New(g *app.Global) *cobra.Command {
	return &cobra.Command{
		Use:   "dashboard",
		Short: "Print the link with which a browser may read the dashboard",
		Long: `Dashboard prints the link of the dashboard that runs for --dir, to whoever may read the token there. The link stays the same over restarts
for as long as the token does. It lets a browser read all runs, and change none.`,
		Example: `  rondo dashboard
  rondo dashboard --dir /srv/rondo
  docker compose exec dashboard rondo dashboard`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			link, err := service.DashboardLink(g.Dir)
			if err != nil {
				return err
			}
			if g.JSON {
				return app.PrintJSON(cmd.OutOrStdout(), map[string]string{"link": link})
			}
			fmt.Fprintln(cmd.OutOrStdout(), link)
			return nil
		},
	}
}
