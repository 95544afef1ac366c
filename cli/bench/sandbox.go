package bench

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/bench/sandbox"
	"github.com/rondo-rl/rondo/cli/app"
)

func newBenchSandbox(g *app.Global) *cobra.Command {
	var o sandbox.Options
	cmd := &cobra.Command{
		Use:   "sandbox",
		Short: "Compare sandboxes with bubblewrap and with bare processes",
		Long: `Sandbox measures three things: a sandbox that is created, runs one command and is destroyed, compared with bubblewrap (bwrap); a command
in a leased sandbox, compared with the same command started directly; and many sandboxes leased at once, with the memory of each.
The two sides of a ratio take turns, and the result is the median of the pairs.

A sandbox's first process is rondo-sandbox-init if that program is in rondo's folder and of the same build
(go build -o DIR ./cmd/... builds both). Otherwise it is rondo itself, which takes longer and more memory. The first lines name the one in use.

Memory is measured for the whole machine, so nothing else should run. The second figure is from the control groups, which do not count some
of the kernel's own memory. The benchmark removes everything it created.`,
		Example: "  rondo-bench sandbox\n  rondo-bench sandbox --pairs 200 --held 0 --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Pairs < 1 || o.Held < 0 {
				return fmt.Errorf("--pairs %d, --held %d: at least one pair, and no negative number, is needed", o.Pairs, o.Held)
			}
			show := app.NewProgress(g)
			r, err := sandbox.Run(cmd.Context(), o, func(line string) { show.Line("%s", line) })
			if err != nil {
				return fmt.Errorf("measure sandboxes: %w", err)
			}
			return app.Show(cmd, g, r, func(w io.Writer) error { return printBenchSandbox(w, r) })
		},
	}
	cmd.Flags().IntVar(&o.Pairs, "pairs", 50, "turns of either side of each ratio")
	cmd.Flags().IntVar(&o.Held, "held", 300, "sandboxes that are leased at once; 0 skips this part")
	return cmd
}

func printBenchSandbox(w io.Writer, r sandbox.Result) error {
	fmt.Fprintf(w, "isolation %s, file system %s, cgroup %s; %s, %d CPUs; medians of %d pairs\n", r.Isolation, r.FSMode, r.Cgroup, r.Go, r.CPUs, r.Pairs)
	fmt.Fprintf(w, "first process: %s\n\n", r.FirstProcess)
	t := app.NewColumns(w)
	fmt.Fprintln(t, "WORK\tms\tBESIDE\tms\tRATIO\tOF PROCESSOR TIME")
	if r.NoBubblewrap == "" {
		fmt.Fprintf(t, "make, run, destroy\t%.2f\tbwrap\t%.2f\t%.2f\t%.2f\n", r.Create, r.Bubblewrap, r.CreateRatio, r.CreateCPU)
	} else {
		fmt.Fprintf(t, "make, run, destroy\t%.2f\tno bwrap\t\t\n", r.Create)
	}
	fmt.Fprintf(t, "run in a leased one\t%.2f\tfork and exec\t%.2f\t%.2f\n", r.Exec, r.Bare, r.ExecRatio)
	if err := t.Flush(); err != nil || r.Held == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d leased at once: %.2f MiB each (%.2f counted by control groups), made in %.1f s, destroyed in %.1f s\n",
		r.Held, r.HeldMiB, r.HeldCharged, r.HeldCreate, r.HeldDestroy)
	return err
}
