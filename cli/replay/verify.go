package replay

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/replay"
)

func replayVerify(cmd *cobra.Command, g *app.Global, p *plane.Plane, run string) error {
	show := app.NewProgress(g)
	v, err := replay.Verify(cmd.Context(), p.Log.Reader, run, func(seq uint64) {
		if seq%1000 == 0 {
			show.Show("sequence %d", seq)
		}
		if seq%100_000 == 0 {
			show.Line("sequence %d", seq)
		}
	})
	if err != nil {
		return err
	}
	show.Line("%d events read", v.Events)
	if g.JSON {
		err = app.PrintJSON(cmd.OutOrStdout(), v)
	} else {
		err = printVerification(cmd.OutOrStdout(), v)
	}
	if err == nil && v.Differences > 0 {
		err = &app.ExitError{Code: app.ExitFindings, Err: fmt.Errorf("replay of %s: %d differences", run,
			v.Differences)}
	}
	return err
}

func printVerification(w io.Writer, v replay.Verification) error {
	for _, name := range app.SortedKeys(v.Checked) {
		fmt.Fprintf(w, "%s: %d facts recomputed\n", name, v.Checked[name])
	}
	for _, d := range v.Details {
		fmt.Fprintf(w, "%s at sequence %d: %s was %s, comes out as %s\n", d.Event, d.Sequence, d.Field,
			d.Recorded, d.Recomputed)
	}
	if more := v.Differences - len(v.Details); more > 0 {
		fmt.Fprintf(w, "… and %d more\n", more)
	}
	_, err := fmt.Fprintf(w, "%d differences\n", v.Differences)
	return err
}
