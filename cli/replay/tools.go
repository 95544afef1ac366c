package replay

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/cli/service"
	"github.com/rondo-rl/rondo/replay"
)

// replayTools runs the recorded tool calls and verifiers of a run again.
func replayTools(cmd *cobra.Command, g *app.Global, p *plane.Plane, run string, o replayOptions) error {
	ctx, began := cmd.Context(), time.Now()
	if err := service.CheckSandbox(ctx, service.NeedSandbox, o.Settings); err != nil {
		return err
	}
	chosen, err := replay.Choose(o.rollouts)
	if err != nil {
		return err
	}
	show, last := app.NewProgress(g), began
	t, err := replay.Tools(ctx, p.Log.Reader, run, chosen, o.sandboxes(), func(t replay.ToolsReplayed) {
		show.Show("%s", t.Line())
		if time.Since(last) > plainEvery && !show.Terminal {
			last = time.Now()
			show.Line("%s", t.Line())
		}
	})
	show.Clear()
	if err != nil {
		return err
	}
	t.Seconds = time.Since(began).Seconds()
	if err := printToolsReplayed(cmd.OutOrStdout(), g, t); err != nil {
		return err
	}
	switch {
	case t.Differences > 0:
		return &app.ExitError{Code: app.ExitFindings, Err: fmt.Errorf("replay of %s: %d differences in %d rollouts",
			run, t.Differences, t.Different)}
	case len(t.Errors) > 0:
		return fmt.Errorf("replay of %s: %d rollouts could not be run again: %s", run, len(t.Errors), t.Errors[0])
	}
	return nil
}

// plainEvery is how often a pipe is told how far long work is.
const plainEvery = 10 * time.Second

func printToolsReplayed(w io.Writer, g *app.Global, t replay.ToolsReplayed) error {
	if g.JSON {
		return app.PrintJSON(w, t)
	}
	for _, c := range t.Details {
		place := c.Rollout
		if c.Turn != nil {
			place += fmt.Sprintf(" turn %d", *c.Turn)
		} else {
			place += " verifier"
		}
		if c.Call != "" {
			place += fmt.Sprintf(" call %.64q (%.64q)", c.Call, c.Tool)
		}
		fmt.Fprintf(w, "%s: %q was %q, comes out as %q\n", place, c.Field, c.Recorded, c.Again)
	}
	if more := t.Differences - len(t.Details); more > 0 {
		fmt.Fprintf(w, "… and %d differences more\n", more)
	}
	for _, e := range t.Errors {
		fmt.Fprintf(w, "not run again: %s\n", e)
	}
	if t.Outside > 0 {
		fmt.Fprintf(w, "%d calls of servers outside of the sandbox were not made again: their answers are taken as recorded\n", t.Outside)
	}
	if t.Agent > 0 {
		fmt.Fprintf(w, "%d turns of agents were not run again: an agent's program runs its calls itself\n", t.Agent)
	}
	_, err := fmt.Fprintf(w, "%s (%.1f s)\n", t.Line(), t.Seconds)
	return err
}
