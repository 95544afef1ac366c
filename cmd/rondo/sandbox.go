package main

import "github.com/spf13/cobra"

func newSandbox(g *global) *cobra.Command {
	cmd := &cobra.Command{Use: "sandbox", Short: "Look into the places where tools run"}
	cmd.AddCommand(newSandboxOpen(g))
	return cmd
}
