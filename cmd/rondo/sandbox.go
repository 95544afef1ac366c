package main

import "github.com/spf13/cobra"

func newSandbox(g *global) *cobra.Command {
	cmd := &cobra.Command{Use: "sandbox", Short: "Run programs, and look around, where an agent's tools run"}
	cmd.AddCommand(newSandboxRun(g), newSandboxOpen(g))
	return cmd
}
