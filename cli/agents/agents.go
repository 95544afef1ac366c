// Package agents has the commands about agents and the layers that they are installed in.
package agents

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/agents"
	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
)

// New makes the command `rondo agents`.
func New(g *app.Global) *cobra.Command {
	cmd := &cobra.Command{Use: "agents",
		Short: "Install coding agents into layers that sandboxes mount, and look at them"}
	cmd.AddCommand(newBuild(g), newList(g), newShow(g), newRemove(g))
	return cmd
}

// completeProfiles offers the shipped profiles.
func completeProfiles(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return app.SortedKeys(agents.Shipped()), cobra.ShellCompDirectiveNoFileComp
}

// completeLayers offers the digests of a running plane's layers, and with profiles the shipped
// ones.
func completeLayers(g *app.Global, profiles bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var names []cobra.Completion
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		if profiles {
			names, _ = completeProfiles(cmd, args, begun)
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
		defer cancel()
		p, err := plane.Connect(ctx, g)
		if err != nil {
			return names, cobra.ShellCompDirectiveNoFileComp
		}
		defer p.Close()
		stored, _ := agents.List(ctx, p.Store)
		for _, s := range stored {
			about := s.Profile.Name + " " + s.Profile.Install.Version
			if s.Damaged != "" {
				about = "damaged"
			}
			names = append(names, cobra.CompletionWithDesc(s.Digest, about))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
