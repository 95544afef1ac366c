package bench

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/bench/replay"
	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/querysampler"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
)

func newBenchReplay(g *app.Global) *cobra.Command {
	o := replay.Options{Services: []func(context.Context, pipeline.Env) error{querysampler.Run, advantagecalculator.Run,
		trainerfeeder.Run}}
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
	}
	measure := func(ctx context.Context, show *app.Progress) (replay.Result, error) {
		var err error
		if o.Rondo, err = rondo(); err != nil {
			return replay.Result{}, err
		}
		return replay.Run(ctx, o, func(line string) { show.Line("%s", line) })
	}
	cmd.Flags().IntVar(&o.Rollouts, "rollouts", 2000, "rollouts that are recorded, at most 12000")
	cmd.Flags().IntVar(&o.Pairs, "pairs", 5, "turns of either side of each ratio")
	return measuring(g, "the replay", cmd, measure)
}
