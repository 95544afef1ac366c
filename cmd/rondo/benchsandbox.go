package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/sandbox/sandboxbench"
)

func newBenchSandbox(g *global) *cobra.Command {
	var o sandboxbench.Options
	cmd := &cobra.Command{
		Use:   "sandbox",
		Short: "Sandboxes beside bubblewrap and beside bare processes",
		Long: `A sandbox that is made, runs one command and is destroyed, beside bubblewrap (bwrap) doing the same; a command in a held
sandbox beside the same command started plainly; and many sandboxes held at once, with the memory that each takes. The two sides
of a ratio take turns, and the figure is the median of the pairs.

A sandbox's first process is rondo-sandbox-init where that lies in the folder of rondo and is of the same build
(go build -o DIR ./cmd/... makes both), and rondo itself elsewhere, which takes longer and more memory: the first lines say which.

Memory is the machine's, so nothing else should run; beside it stands what the control groups count, which leaves out some
of the kernel's own. Nothing is left behind.`,
		Example: "  rondo bench sandbox\n  rondo bench sandbox --pairs 200 --held 0 --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Pairs < 1 || o.Held < 0 {
				return fmt.Errorf("--pairs %d, --held %d: at least one pair, and no negative number, is needed", o.Pairs, o.Held)
			}
			show := newProgress(g)
			r, err := sandboxbench.Run(cmd.Context(), o, func(line string) { show.line("%s", line) })
			if err != nil {
				return fmt.Errorf("measure sandboxes: %w", err)
			}
			if g.json {
				return printJSON(cmd.OutOrStdout(), r)
			}
			return printBenchSandbox(cmd.OutOrStdout(), r)
		},
	}
	cmd.Flags().IntVar(&o.Pairs, "pairs", 50, "turns of either side of each ratio")
	cmd.Flags().IntVar(&o.Held, "held", 300, "sandboxes that are held at once; 0 leaves that out")
	return cmd
}

func printBenchSandbox(w io.Writer, r sandboxbench.Result) error {
	fmt.Fprintf(w, "isolation %s, file system %s, cgroup %s; %s, %d CPUs; medians of %d pairs\n", r.Isolation, r.FSMode, r.Cgroup, r.Go, r.CPUs, r.Pairs)
	fmt.Fprintf(w, "first process: %s\n\n", r.FirstProcess)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "WORK\tms\tBESIDE\tms\tRATIO\tOF PROCESSOR TIME")
	if r.NoBubblewrap == "" {
		fmt.Fprintf(t, "make, run, destroy\t%.2f\tbwrap\t%.2f\t%.2f\t%.2f\n", r.Create, r.Bubblewrap, r.CreateRatio, r.CreateCPU)
	} else {
		fmt.Fprintf(t, "make, run, destroy\t%.2f\tno bwrap\t\t\n", r.Create)
	}
	fmt.Fprintf(t, "run in a held one\t%.2f\tfork and exec\t%.2f\t%.2f\n", r.Exec, r.Bare, r.ExecRatio)
	if err := t.Flush(); err != nil || r.Held == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d held at once: %.2f MiB each (%.2f counted by control groups), made in %.1f s, destroyed in %.1f s\n",
		r.Held, r.HeldMiB, r.HeldCharged, r.HeldCreate, r.HeldDestroy)
	return err
}
