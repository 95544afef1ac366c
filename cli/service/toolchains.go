package service

import (
	"context"
	"slices"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/tasks"
)

// WarmToolchains prepares what tasks need before the clock starts.
func WarmToolchains(ctx context.Context, show *app.Progress, list []*tasks.Task, s Settings) error {
	var names []string
	for _, t := range list {
		names = append(names, t.Toolchains...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 {
		return nil
	}
	show.Show("preparing toolchains %v (once, about a minute)", names)
	_, _, err := sandbox.Toolchains(ctx, names, s.ToolchainCache)
	return err
}
