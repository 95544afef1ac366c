// Package manual writes the manual pages of the commands.
package manual

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/rondo-rl/rondo/cli/app"
)

// New makes the hidden command `rondo man`, by which releases make their manual pages.
func New(g *app.Global) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "man --out DIR", Short: "Write the manual pages of all commands", Args: cobra.NoArgs, Hidden: true,
		Long:    "Man writes a page of section 1 for each command. Releases have them in the folder man: copy them to a folder such as /usr/local/share/man/man1.",
		Example: "  rondo man --out /usr/local/share/man/man1",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := os.MkdirAll(out, 0o755); err != nil {
				return err
			}
			root := cmd.Root()
			showAll(root)
			root.DisableAutoGenTag = true // the same program makes the same pages
			if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Rondo", Manual: "Rondo"},
				out); err != nil {
				return fmt.Errorf("write manual pages: %w", err)
			}
			return app.Tell(cmd, g, map[string]string{"out": out},
				"manual pages are in %s: `man %s/rondo.1` shows the first one\n", out, out)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "folder of the pages")
	cmd.MarkFlagRequired("out")
	return cmd
}

// showAll lets pages have the flags that help leaves out.
func showAll(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = false })
	for _, sub := range cmd.Commands() {
		showAll(sub)
	}
}
