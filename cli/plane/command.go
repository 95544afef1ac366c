package plane

import (
	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
)

// work is what a command does with a plane.
type work = func(cmd *cobra.Command, args []string, p *Plane) error

// Command does its work with the plane that the flags name.
func Command(g *app.Global, do work) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		p, err := Connect(cmd.Context(), g)
		if err != nil {
			return err
		}
		defer p.Close()
		return do(cmd, args, p)
	}
}

// RunCommand is Command for one whose first argument is a run that the plane must have.
func RunCommand(g *app.Global, do work) func(*cobra.Command, []string) error {
	return Command(g, func(cmd *cobra.Command, args []string, p *Plane) error {
		if err := p.MustRun(cmd.Context(), args[0]); err != nil {
			return err
		}
		return do(cmd, args, p)
	})
}

// Reading is Command for one that reads alone, and shows what it can while the store is out.
func Reading(g *app.Global, do work) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		g.Reads = true
		return Command(g, do)(cmd, args)
	}
}
