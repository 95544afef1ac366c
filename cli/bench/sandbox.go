package bench

import (
	"context"
	"fmt"

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
(go build -o DIR ./cmd/... builds both). Otherwise it is rondo itself, which takes longer and more memory. first_process names the one in use.

Memory is measured for the whole machine, so nothing else should run. held_charged_mib_each is from the control groups, which do not count some
of the kernel's own memory. The benchmark removes everything it created.`,
		Example: "  rondo-bench sandbox\n  rondo-bench sandbox --pairs 200 --held 0 --json",
	}
	measure := func(ctx context.Context, show *app.Progress) (sandbox.Result, error) {
		if o.Pairs < 1 || o.Held < 0 {
			return sandbox.Result{},
				fmt.Errorf("--pairs %d, --held %d: at least one pair, and no negative number, is needed", o.Pairs,
					o.Held)
		}
		return sandbox.Run(ctx, o, func(line string) { show.Line("%s", line) })
	}
	cmd.Flags().IntVar(&o.Pairs, "pairs", 50, "turns of either side of each ratio")
	cmd.Flags().IntVar(&o.Held, "held", 300, "sandboxes that are leased at once; 0 skips this part")
	return measuring(g, "sandboxes", cmd, measure)
}
