package run

import (
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

func newRunPause(g *app.Global) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "pause RUN", Short: "Open no more groups; rollouts in flight continue, and deadlines stay",
		Example: "  rondo run pause first --reason 'the inference server moves'", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return stateRun(cmd, g, args[0], events.RunPausedType, events.RunPaused{Reason: reason}, "paused")
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "paused by the operator", "reason, shown with the run")
	return cmd
}

func newRunResume(g *app.Global) *cobra.Command {
	return newRunStatement(g, "resume", "Go on with a run that was paused, by an operator or by Rondo itself", events.RunResumedType, events.RunResumed{Reason: "resumed by the operator"}, "open")
}

// newRunStatement makes a command that states a fact about a run; state is what the run is then.
func newRunStatement(g *app.Global, name, short string, t events.Type, data any, state string) *cobra.Command {
	return &cobra.Command{
		Use: name + " RUN", Short: short, Example: "  rondo run " + name + " first", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return stateRun(cmd, g, args[0], t, data, state)
		},
	}
}

// stateRun submits an event about a run; state is what the run is then.
func stateRun(cmd *cobra.Command, g *app.Global, run string, t events.Type, data any, state string) error {
	p, err := plane.ConnectRun(cmd.Context(), g, run)
	if err != nil {
		return err
	}
	defer p.Close()
	answer, err := plane.Submit(cmd.Context(), p, eventlog.Submission{Run: run, Type: t, Entity: run, Data: data, ID: nats.NewInbox()[7:]})
	if err != nil {
		return err
	}
	if g.JSON {
		return app.PrintJSON(cmd.OutOrStdout(), answer)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "run %s is %s\n", run, state)
	return nil
}
