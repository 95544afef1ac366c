package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

func newRunPause(g *global) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "pause RUN", Short: "Open no more groups; what is in flight goes on, and deadlines hold",
		Example: "  rondo run pause first --reason 'the inference server moves'", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return stateRun(cmd, g, args[0], events.RunPausedType, events.RunPaused{Reason: reason}, "paused")
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "paused by the operator", "why, for who looks at the run")
	return cmd
}

func newRunResume(g *global) *cobra.Command {
	return newRunStatement(g, "resume", "Go on with a run that was paused, by an operator or by Rondo itself", events.RunResumedType, events.RunResumed{Reason: "resumed by the operator"}, "open")
}

// newRunStatement makes a command that states a fact about a run; state is what the run is then.
func newRunStatement(g *global, name, short string, t events.Type, data any, state string) *cobra.Command {
	return &cobra.Command{
		Use: name + " RUN", Short: short, Example: "  rondo run " + name + " first", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return stateRun(cmd, g, args[0], t, data, state)
		},
	}
}

// stateRun states a fact about a run at the door; state is what the run is then.
func stateRun(cmd *cobra.Command, g *global, run string, t events.Type, data any, state string) error {
	p, err := connectRun(cmd.Context(), g, run)
	if err != nil {
		return err
	}
	defer p.close()
	answer, err := submit(cmd.Context(), p, eventlog.Submission{Run: run, Type: t, Entity: run, Data: data, ID: nats.NewInbox()[7:]})
	if err != nil {
		return err
	}
	if g.json {
		return printJSON(cmd.OutOrStdout(), answer)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "run %s is %s\n", run, state)
	return nil
}

// runState is whether a run is open, paused or closed, and why.
func runState(ctx context.Context, log *eventlog.Log, run string) (state, reason string, err error) {
	last, err := log.Last(ctx, run, events.RunOpenedType.Kind(), run)
	if errors.Is(err, eventlog.ErrNotFound) {
		if _, err := log.Incarnation(ctx, run); errors.Is(err, eventlog.ErrNotFound) {
			return "archived", "", nil // its stream was deleted
		}
		return "open", "", nil
	}
	if err != nil {
		return "", "", err
	}
	switch last.Type {
	case events.RunPausedType:
		paused, err := events.Data[events.RunPaused](last)
		return "paused", paused.Reason, err
	case events.RunClosedType:
		closed, err := events.Data[events.RunClosed](last)
		return "closed", closed.Reason, err
	}
	return "open", "", nil
}
