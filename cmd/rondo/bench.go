package main

import "github.com/spf13/cobra"

func newBench(g *global) *cobra.Command {
	return &cobra.Command{Use: "bench", Short: "Measure the plane as ratios to the raw limits"}
}
