// Package index has the commands for code indexes.
package index

import (
	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
)

// New makes the command `rondo index`.
func New(g *app.Global) *cobra.Command {
	cmd := &cobra.Command{
		Use: "index", Short: "Keep and search an index of code, sealed for whoever holds its key",
		Long: `The index of a repository finds the code that answers a question. It holds vectors and words of the code's chunks, is in the
object store, and is encrypted with a key that only you have: neither the store nor the plane sees names or texts of the code.`,
	}
	cmd.AddCommand(newIndexSync(g), newIndexSearch(g), newIndexStatus(g), newIndexForget(g), newIndexPairs(g))
	return cmd
}
