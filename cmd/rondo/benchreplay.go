package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/events/runtime"
	"github.com/rondo-rl/rondo/events/runtime/replaybench"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/querysampler"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
)

func newBenchReplay(g *global) *cobra.Command {
	o := replaybench.Options{Services: []func(context.Context, runtime.Env) error{querysampler.Run, advantagecalculator.Run, trainerfeeder.Run}}
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "A recorded run folded from its stream and from its archive, and every decision of it made again",
		Long: `The deciding services record a run on an embedded server; turns, tools, verdicts and weights are made up, in the sizes of a
demo: some 16 events and 110 KiB of log for each rollout.

Then its books are folded from the stream beside a bare ordered consumer of the same messages, and from the archive beside a
bare Arrow reader of the same segments, in turns; the figures are the median ratios. A process of its own makes every decision
of the run again, as rondo replay --verify does: rollouts a second and its peak memory.

The run lives in a temporary directory (10,000 rollouts take some 2 GiB); no plane is touched.`,
		Example: "  rondo bench replay\n  rondo bench replay --rollouts 10000 --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			binary, err := os.Executable()
			if err != nil {
				return err
			}
			o.Rondo = binary
			show := newProgress(g)
			r, err := replaybench.Run(cmd.Context(), o, func(line string) { show.line("%s", line) })
			if err != nil {
				return fmt.Errorf("measure the replay: %w", err)
			}
			if g.json {
				return printJSON(cmd.OutOrStdout(), r)
			}
			return printBenchReplay(cmd.OutOrStdout(), r)
		},
	}
	cmd.Flags().IntVar(&o.Rollouts, "rollouts", 2000, "rollouts that are recorded, at most 12000")
	cmd.Flags().IntVar(&o.Pairs, "pairs", 5, "turns of either side of each ratio")
	return cmd
}

func printBenchReplay(w io.Writer, r replaybench.Result) error {
	fmt.Fprintf(w, "%d events of %d rollouts, %d MiB of log, %d MiB of archive; %s, %d CPUs; medians of %d pairs of turns\n\n",
		r.Events, r.Verified, r.Bytes>>20, r.ArchiveBytes>>20, r.Go, r.CPUs, r.Pairs)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "READ FROM\tFOLDED, EVENTS/S\tBARE READER\tRATIO\tOF PROCESSOR TIME\t")
	fmt.Fprintf(t, "stream\t%.0f\t%.0f\t%.2f\t%.2f\t\n", r.Replay, r.Raw, r.ReplayRatio, r.ReplayCPU)
	fmt.Fprintf(t, "archive\t%.0f\t%.0f\t%.2f\t%.2f\t\n", r.Archive, r.ArchiveRaw, r.ArchiveRatio, r.ArchiveCPU)
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d facts of %d rollouts verified in %.1f s: %.0f rollouts/s, at most %.0f MiB\n", r.VerifiedFacts, r.Verified, r.VerifySeconds, r.Verify, r.PeakMiB)
	return err
}
