package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

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

zstd and xdelta3 make the delta of a smaller checkpoint where they are installed. The last line is JSON.`,
		Example: "  rondo-bench weights\n  rondo-bench weights --mib 4096 --rates 1e-6 --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show := app.NewProgress(g)
			r, err := weights.Run(cmd.Context(), o, func(line string) { show.Line("%s", line) })
			if err != nil {
				return fmt.Errorf("measure deltas: %w", err)
			}
			return app.Show(cmd, g, r, func(w io.Writer) error { return printWeights(w, r) })
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.MiB, "mib", 256, "size of a checkpoint; the files take up to five times this size")
	flags.Float64SliceVar(&o.Rates, "rates", []float64{1e-7, 1e-6, 3e-6, 1e-5}, "learning rates")
	flags.IntVar(&o.Pairs, "pairs", 3, "turns of either side at each rate")
	flags.IntVar(&o.PeerMiB, "peer-mib", 16, "size of the checkpoint for zstd and xdelta3; 0 leaves them out")
	flags.StringVar(&o.Dir, "dir", "", "folder for the files (default: the system's for temporary files)")
	return cmd
}

func printWeights(w io.Writer, r weights.Result) error {
	fmt.Fprintf(w, "%d MiB of bf16; %s, %d CPUs, load %.1f; at most %.0f MiB of memory\n\n", r.MiB, r.Go, r.CPUs, r.Load, r.PeakMiB)
	t := app.NewColumns(w)
	fmt.Fprintln(t, "LR\tCHANGED\tDELTA\tOF ENTROPY\tENCODE GB/s\tOF cmp\tAPPLY GB/s\tOF cp\tSYNCED\t")
	for _, m := range r.Rates {
		fmt.Fprintf(t, "%.0e\t%.2f%%\t%.3f%%\t%.3f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t\n", m.Rate, 100*m.Changed, 100*m.BytesFrac, m.Entropy, m.EncodeGBs, m.Encode, m.ApplyGBs, m.Apply, m.Synced)
	}
	err := t.Flush()
	if len(r.Peers) > 0 {
		fmt.Fprintln(w)
		fmt.Fprintln(t, "AT 1e-06\tDELTA\tSECONDS\t")
		for _, p := range r.Peers {
			if p.Missing != "" {
				fmt.Fprintf(t, "%s\t%s\t\t\n", p.Name, p.Missing)
				continue
			}
			fmt.Fprintf(t, "%s\t%.3f%%\t%.2f\t\n", p.Name, 100*p.BytesFrac, p.Seconds)
		}
		err = errors.Join(err, t.Flush())
	}
	return errors.Join(err, json.NewEncoder(w).Encode(r))
}
