package run

import (
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

func newRunPause(g *app.Global) *cobra.Command {
	paused := &events.RunPaused{}
	cmd := newRunStatement(g, "pause", "Open no more groups; rollouts in flight continue, and deadlines stay",
		events.RunPausedType, paused, "paused")
	cmd.Example = "  rondo run pause first --reason 'the inference server moves'"
	cmd.Flags().StringVar(&paused.Reason, "reason", "paused by the operator", "reason, shown with the run")
	return cmd
}

// newRunStatement makes a command that states a fact about a run; state is what the run is then.
func newRunStatement(g *app.Global, name, short string, t events.Type, data any, state string) *cobra.Command {
	return &cobra.Command{
		Use: name + " RUN", Short: short, Example: "  rondo run " + name + " first", Args: cobra.ExactArgs(1),
		RunE: plane.RunCommand(g, func(cmd *cobra.Command, args []string, p *plane.Plane) error {
			fact := eventlog.Submission{Run: args[0], Type: t, Entity: args[0], Data: data, ID: nats.NewInbox()[7:]}
			answer, err := plane.Submit(cmd.Context(), p, fact)
			if err != nil {
				return err
			}
			return app.Tell(cmd, g, answer, "run %s is %s\n", args[0], state)
		}),
	}
}
