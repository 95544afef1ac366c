// Package weights has the commands about the versions of a policy.
package weights

import (
	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
)

// New makes the command `rondo weights`.
func New(g *app.Global) *cobra.Command {
	cmd := &cobra.Command{Use: "weights", Short: "Bring published weights to inference servers, and look at them"}
	cmd.AddCommand(newFetch(g), newMirror(g), newPromote(g), newRollback(g), newList(g), newShow(g), newDiff(g),
		newQuantize(g), newGC(g))
	return cmd
}
