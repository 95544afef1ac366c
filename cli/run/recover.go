package run

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events/recovery"
)

func newRunRecover(g *app.Global) *cobra.Command {
	return &cobra.Command{
		Use: "recover RUN", Short: "Find what is lost of a run, and bring back what can be", Args: cobra.ExactArgs(1),
		Long: `Recover compares the run's stream, its archive and the catalogue, reads every object that its events name, and says what is lost.
Then it brings back what can be:

  a stream that is gone, or was rolled back        from the archive, up to its last segment
  a restoration that was interrupted               goes on
  a segment that the store has lost                from the stream, where that has all of its events
  what the catalogue should list of the run        from the stream, or from the segments in the store

What is left needs you. Any other object can only come from a copy of the store. Where stream and archive differ, recover names the
first sequence and changes nothing: nobody but you can say which of them is the run. Services may run meanwhile. It exits with 2 when
something is left.`,
		Example: "  rondo run recover demo-1\n  rondo run recover demo-1 --json\n  rondo run recover demo-1 --nats nats://10.0.0.9:4222 --store /srv/rondo/objects",
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := plane.ConnectRestoring(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.Close()
			r, err := recovery.Recover(cmd.Context(), p.Log, args[0], p.AwaitNoDecider)
			if err == nil && len(r.Done) > 0 {
				err = plane.ListStored(cmd.Context(), p.Log, args[0])
			}
			if err != nil {
				return err
			}
			if g.JSON {
				err = app.PrintJSON(cmd.OutOrStdout(), r)
			} else {
				printRecovery(cmd, r)
			}
			if err == nil && len(r.Left) > 0 {
				err = &app.ExitError{Code: app.ExitFindings,
					Err: fmt.Errorf("run %s: %d findings are left", args[0], len(r.Left))}
			}
			return err
		},
	}
}

func printRecovery(cmd *cobra.Command, r recovery.Report) {
	w := cmd.OutOrStdout()
	for _, f := range r.Found {
		fmt.Fprintf(w, "found: %s\n", app.Clean(f.String()))
	}
	for _, done := range r.Done {
		fmt.Fprintf(w, "done: %s\n", done)
	}
	for _, f := range r.Left {
		fmt.Fprintf(w, "left: %s\n", app.Clean(f.String()))
		fmt.Fprintf(w, "      → %s\n", f.Do)
	}
	switch {
	case len(r.Found) == 0:
		fmt.Fprintf(w, "run %s: nothing is lost\n", r.Run)
	case len(r.Left) == 0:
		fmt.Fprintf(w, "run %s: nothing is left to recover\n", r.Run)
	}
}
