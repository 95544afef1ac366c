package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			version, goVersion := "unknown", ""
			if info, ok := debug.ReadBuildInfo(); ok {
				version, goVersion = info.Main.Version, info.GoVersion
			}
			if g.json {
				return printJSON(cmd.OutOrStdout(), map[string]string{"version": version, "go": goVersion})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "rondo %s (%s)\n", version, goVersion)
			return nil
		},
	}
}
