package bench

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/bench/weights"
	"github.com/rondo-rl/rondo/cli/app"
)

func newBenchWeights(g *app.Global) *cobra.Command {
	var o weights.Options
	cmd := &cobra.Command{
		Use:   "weights",
		Short: "Deltas between checkpoints: their size beside the entropy, their speed beside cmp and cp",
		Long: `Weights makes checkpoints of synthetic bf16 and lets training steps of several learning rates change them. It encodes the delta of
each step and applies it, and compares the speeds with those of cmp over two checkpoints and cp of one in the same run, while all
files are in memory. A step has the deviation 0.5 x lr, which changes as many elements as published runs did. The entropy counts the changed positions and their differences.

zstd and xdelta3 make the delta of a smaller checkpoint where they are installed.`,
		Example: "  rondo-bench weights\n  rondo-bench weights --mib 4096 --rates 1e-6 --json",
	}
	measure := func(ctx context.Context, show *app.Progress) (weights.Result, error) {
		return weights.Run(ctx, o, func(line string) { show.Line("%s", line) })
	}
	flags := cmd.Flags()
	flags.IntVar(&o.MiB, "mib", 256, "size of a checkpoint; the files take up to five times this size")
	flags.Float64SliceVar(&o.Rates, "rates", []float64{1e-7, 1e-6, 3e-6, 1e-5}, "learning rates")
	flags.IntVar(&o.Pairs, "pairs", 3, "turns of either side at each rate")
	flags.IntVar(&o.PeerMiB, "peer-mib", 16, "size of the checkpoint for zstd and xdelta3; 0 leaves them out")
	flags.StringVar(&o.Dir, "dir", "", "folder for the files (default: the system's for temporary files)")
	return measuring(g, "deltas", cmd, measure)
}
