// Package sandbox has the commands that run programs in sandboxes.
package sandbox

import (
	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
)

// New makes the command `rondo sandbox`.
func New(g *app.Global) *cobra.Command {
	cmd := &cobra.Command{Use: "sandbox", Short: "Run programs, and look around, where an agent's tools run"}
	cmd.AddCommand(newSandboxRun(g), newSandboxOpen(g))
	return cmd
}
