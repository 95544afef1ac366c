// Package cli is the command line: one package for each noun, and here what
// makes a program of them.
package cli

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/advantage"
	"github.com/rondo-rl/rondo/cli/agents"
	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/archive"
	"github.com/rondo-rl/rondo/cli/audit"
	"github.com/rondo-rl/rondo/cli/auth"
	"github.com/rondo-rl/rondo/cli/completion"
	"github.com/rondo-rl/rondo/cli/dashboard"
	"github.com/rondo-rl/rondo/cli/demo"
	"github.com/rondo-rl/rondo/cli/doctor"
	"github.com/rondo-rl/rondo/cli/eval"
	"github.com/rondo-rl/rondo/cli/events"
	"github.com/rondo-rl/rondo/cli/explain"
	"github.com/rondo-rl/rondo/cli/gc"
	"github.com/rondo-rl/rondo/cli/index"
	"github.com/rondo-rl/rondo/cli/logs"
	"github.com/rondo-rl/rondo/cli/manual"
	"github.com/rondo-rl/rondo/cli/objects"
	"github.com/rondo-rl/rondo/cli/replay"
	"github.com/rondo-rl/rondo/cli/run"
	"github.com/rondo-rl/rondo/cli/sandbox"
	"github.com/rondo-rl/rondo/cli/scaffold"
	"github.com/rondo-rl/rondo/cli/service"
	"github.com/rondo-rl/rondo/cli/tasks"
	"github.com/rondo-rl/rondo/cli/tools"
	"github.com/rondo-rl/rondo/cli/top"
	"github.com/rondo-rl/rondo/cli/track"
	"github.com/rondo-rl/rondo/cli/trajectories"
	"github.com/rondo-rl/rondo/cli/up"
	"github.com/rondo-rl/rondo/cli/weights"
)

// New makes the program with all its commands.
func New() *cobra.Command {
	var global *app.Global
	first := func(g *app.Global) *cobra.Command {
		global = g
		return demo.New(g)
	}
	root := app.New(
		first, scaffold.NewInit, scaffold.NewConfig, up.New, objects.NewCat, dashboard.New, service.New, run.New,
		events.New, logs.New, trajectories.New, tasks.New, tools.New, audit.New, explain.New, top.New, track.New,
		run.NewFork, run.NewInvalidate, run.NewMark, replay.New, replay.NewDiff, archive.New, weights.New, gc.New,
		index.New, eval.New, eval.NewRelease, advantage.New, sandbox.New, agents.New, auth.New,
		doctor.New, newVersion, manual.New,
	)
	completion.Add(global, root)
	b := buildOf(debug.ReadBuildInfo())
	root.Version = fmt.Sprintf("%s (%s)", b, b.Go)
	root.SetVersionTemplate("rondo {{.Version}}\n")
	return root
}
