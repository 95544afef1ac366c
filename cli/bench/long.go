package bench

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/bench/long"
	"github.com/rondo-rl/rondo/cli/app"
)

func newBenchLong(g *app.Global) *cobra.Command {
	var o long.Options
	cmd := &cobra.Command{
		Use:   "long",
		Short: "What a turn costs in rollouts of hundreds of turns",
		Long: `Long runs rollouts of several lengths through the real services on an embedded log, with sandboxes and a scripted inference
server in this process. It measures the processor time and the bytes on the log of a turn, by the tenth of the rollout that the turn is in.

A request holds the whole conversation, and its answer the ids of the whole prompt, so what they cost grows with the rollout. Behind
each tenth all rollouts wait while the benchmark sends the requests of that tenth again with the same client. It subtracts the
processor time of client and server: the rest is that of services, log and store. The services' own work is also to write the
messages of a request, and to compare the ids of a prompt with what was sampled. Processes in the sandboxes are not counted. What is
allocated is counted in the same way, which does not depend on the load of the machine.

cpu_ratio compares a turn in the last tenth of the longest rollouts with the mean turn of the shortest ones. bytes_ratio does the same for bytes on
the log, and allocated_ratio for allocated bytes. cpu_ratio_mean compares the mean turns of both. With --lengths 100,1000 or more between them they
have a second name: cpu_ratio_1000_to_100, cpu_ratio_mean_1000_to_100, allocated_ratio_1000_to_100. The benchmark removes everything that it created, and touches no plane.`,
		Example: "  rondo-bench long\n  rondo-bench long --lengths 100,1000 --rollouts 4 --json",
	}
	measure := func(ctx context.Context, show *app.Progress) (long.Result, error) {
		return long.Run(ctx, o, func(line string) { show.Line("%s", line) }, func(now string) { show.Show("%s", now) })
	}
	flags := cmd.Flags()
	flags.IntSliceVar(&o.Lengths, "lengths", []int{100, 300, 1000}, "turns of a rollout")
	flags.IntVar(&o.Rollouts, "rollouts", 2, "rollouts of each length, which run at once")
	flags.IntVar(&o.Tokens, "tokens", 128, "tokens that are sampled in a turn")
	flags.BoolVar(&o.AllowInsecure, "allow-insecure", false, "run tools without isolation where the kernel refuses it")
	return measuring(g, "long rollouts", cmd, measure)
}
