package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/events/runtime/stagebench"
)

func newBench(g *global) *cobra.Command {
	cmd := &cobra.Command{Use: "bench", Short: "Measure what the plane costs, as ratios to the same work without it"}
	cmd.AddCommand(newBenchStage(g), newBenchFeed(g), newBenchReplay(g), newBenchIndex(g), newBenchSandbox(g))
	return cmd
}

func newBenchStage(g *global) *cobra.Command {
	var o stagebench.Options
	cmd := &cobra.Command{
		Use:   "stage",
		Short: "One stage of the pipeline beside the same stage written directly on nats.go",
		Long: `Consume, handle, append, acknowledge: by the service runtime, and by 64 workers directly on nats.go.

Both run in this process on embedded servers, in turns, once with every append synced to disk and once with a
sync each 100 ms. The figure is the median ratio of their throughputs. Nothing is left behind, and no plane is
touched.`,
		Example: "  rondo bench stage\n  rondo bench stage --events 100000 --pairs 11 --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show := newProgress(g)
			r, err := stagebench.Run(cmd.Context(), o, func(line string) { show.line("%s", line) })
			if err != nil {
				return fmt.Errorf("measure the stage: %w", err)
			}
			if g.json {
				return printJSON(cmd.OutOrStdout(), r)
			}
			return printStage(cmd.OutOrStdout(), r)
		},
	}
	cmd.Flags().IntVar(&o.Events, "events", 20000, "events of one turn; an eighth of them where every append is synced")
	cmd.Flags().IntVar(&o.Pairs, "pairs", 7, "turns of either side at each durability")
	return cmd
}

func printStage(w io.Writer, r stagebench.Result) error {
	fmt.Fprintf(w, "%d events in work at once, %d bytes each; %s, %d CPUs; medians of %d pairs of turns\n\n", r.Slots, r.PayloadBytes, r.Go, r.CPUs, r.Pairs)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "DURABILITY\tSTAGE\tEVENTS/S\tCPU µs/EVENT\tALLOCS/EVENT\tBYTES/EVENT\tRATIO\t")
	for _, s := range r.Settings {
		line := func(name string, c stagebench.Cost, ratio string) {
			fmt.Fprintf(t, "%s\t%s\t%.0f\t%.1f\t%.0f\t%.0f\t%s\t\n", s.Durability, name, c.EventsPerSecond, c.CPUMicroseconds, c.Allocs, c.AllocBytes, ratio)
		}
		line("nats.go", s.Raw, "1")
		line("rondo", s.Runtime, fmt.Sprintf("%.2f (%.2f to %.2f)", s.Ratio, s.RatioMin, s.RatioMax))
	}
	return t.Flush()
}
