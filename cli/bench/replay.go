package bench

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/bench/replay"
	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/querysampler"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
)

func newBenchReplay(g *app.Global) *cobra.Command {
	o := replay.Options{Services: []func(context.Context, pipeline.Env) error{querysampler.Run, advantagecalculator.Run, trainerfeeder.Run}}
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "A recorded run folded from its stream and from its archive, and every decision of it made again",
		Long: `The benchmark records a run with the deciding services on an embedded server. Turns, tool calls, verdicts and weights are
generated in the sizes of a demo: about 16 events and 110 KiB of log for each rollout.

It then measures two ratios, whose sides take turns: reading the run's books from the stream, compared with a plain ordered
consumer of the same messages; and reading them from the archive, compared with a plain Arrow reader of the same segments.
The results are the medians. A separate process makes every decision of the run again, as rondo replay --verify does, and
reports rollouts per second and its peak memory.

The run is in a temporary directory (10,000 rollouts take about 2 GiB). No plane is touched.`,
		Example: "  rondo-bench replay\n  rondo-bench replay --rollouts 10000 --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.Rondo, err = rondo(); err != nil {
				return err
			}
			show := app.NewProgress(g)
			r, err := replay.Run(cmd.Context(), o, func(line string) { show.Line("%s", line) })
			if err != nil {
				return fmt.Errorf("measure the replay: %w", err)
			}
			return app.Show(cmd, g, r, func(w io.Writer) error { return printBenchReplay(w, r) })
		},
	}
	cmd.Flags().IntVar(&o.Rollouts, "rollouts", 2000, "rollouts that are recorded, at most 12000")
	cmd.Flags().IntVar(&o.Pairs, "pairs", 5, "turns of either side of each ratio")
	return cmd
}

func printBenchReplay(w io.Writer, r replay.Result) error {
	fmt.Fprintf(w, "%d events of %d rollouts, %d MiB of log, %d MiB of archive; %s, %d CPUs; medians of %d pairs of turns\n\n",
		r.Events, r.Verified, r.Bytes>>20, r.ArchiveBytes>>20, r.Go, r.CPUs, r.Pairs)
	t := app.NewColumns(w)
	fmt.Fprintln(t, "READ FROM\tFOLDED, EVENTS/S\tBARE READER\tRATIO\tOF PROCESSOR TIME\t")
	fmt.Fprintf(t, "stream\t%.0f\t%.0f\t%.2f\t%.2f\t\n", r.Replay, r.Raw, r.ReplayRatio, r.ReplayCPU)
	fmt.Fprintf(t, "archive\t%.0f\t%.0f\t%.2f\t%.2f\t\n", r.Archive, r.ArchiveRaw, r.ArchiveRatio, r.ArchiveCPU)
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d facts of %d rollouts verified in %.1f s: %.0f rollouts/s, at most %.0f MiB\n", r.VerifiedFacts, r.Verified, r.VerifySeconds, r.Verify, r.PeakMiB)
	return err
}
