package bench

import (
	"fmt"
	"io"

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
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show := app.NewProgress(g)
			r, err := long.Run(cmd.Context(), o, func(line string) { show.Line("%s", line) }, func(now string) { show.Show("%s", now) })
			if err != nil {
				return fmt.Errorf("measure long rollouts: %w", err)
			}
			return app.Show(cmd, g, r, func(w io.Writer) error { return printLong(w, r) })
		},
	}
	flags := cmd.Flags()
	flags.IntSliceVar(&o.Lengths, "lengths", []int{100, 300, 1000}, "turns of a rollout")
	flags.IntVar(&o.Rollouts, "rollouts", 2, "rollouts of each length, which run at once")
	flags.IntVar(&o.Tokens, "tokens", 128, "tokens that are sampled in a turn")
	flags.BoolVar(&o.AllowInsecure, "allow-insecure", false, "run tools without isolation where the kernel refuses it")
	return cmd
}

func printLong(w io.Writer, r long.Result) error {
	fmt.Fprintf(w, "%d rollouts at once, %d sampled tokens a turn; %s, %d CPUs; milliseconds of processor time and bytes on the log, for each turn\n\n", r.Rollouts, r.Tokens, r.Go, r.CPUs)
	t := app.NewColumns(w)
	fmt.Fprintln(t, "TURNS\tALL ms\tREQUESTS ms\tOWN ms\tFIRST TENTH\tLAST TENTH\tBYTES\tFIRST TENTH\tLAST TENTH\tBYTES/TOKEN\tALLOCATED kB\tLAST TENTH\tHEAP MiB\tRSS MiB\t")
	for _, l := range r.Lengths {
		last := len(l.Parts) - 1
		fmt.Fprintf(t, "%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.0f\t%.0f\t%.0f\t%.2f\t%.0f\t%.0f\t%.0f\t%.0f\t\n",
			l.Turns, l.CPU, l.Requests, l.Own, l.Parts[0], l.Parts[last], l.Bytes, l.ByteParts[0], l.ByteParts[last], l.LogPerToken, l.Allocated, l.AllocatedParts[last], l.Heap, l.RSS)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\ncpu %.2f, bytes %.2f, allocated %.2f, heap %.2f of the shortest\n", r.CPURatio, r.BytesRatio, r.AllocatedRatio, r.HeapRatio)
	return err
}
