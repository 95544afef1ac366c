package bench

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/bench/rollouts"
	"github.com/rondo-rl/rondo/bench/stage"
	"github.com/rondo-rl/rondo/cli/app"
)

func newBenchPipeline(g *app.Global) *cobra.Command {
	var o rollouts.Options
	cmd := &cobra.Command{
		Use:   "pipeline",
		Short: "How many rollouts a second the services pass on, and what each stage adds",
		Long: `Pipeline runs rollouts through the real query sampler, generator, advantage calculator, trainer feeder and archiver on an embedded
log, in this process. The inference server is scripted, and tool runner and scorer are stand-ins: all three answer at once. So what is
measured is the pipeline, and not models, sandboxes or tests.

First one stage is measured, as rondo-bench stage does. Then all rollouts are open at once: this gives rollouts and events a second,
and the processor time of a rollout. At last 48 rollouts are open, and the model takes so long for a turn that half as many turns a
second come: this gives the time of each stage, from the event that begins it to the one that ends it, beside that of nats.go alone
under the same load. added_ms_p50 and added_ms_p99 sum up what the stages take more.

With --open another run holds so many rollouts open at a model that does not answer, and measures the memory of the process. The benchmark
removes everything that it created, and touches no plane.`,
		Example: "  rondo-bench pipeline\n  rondo-bench pipeline --rollouts 3200 --turns 8 --json\n  rondo-bench pipeline --open 100000",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show := app.NewProgress(g)
			s, err := stage.Run(cmd.Context(), stage.Options{Events: 5000, Pairs: 3, Durability: []time.Duration{100 * time.Millisecond}}, func(now string) { show.Show("%s", now) })
			if err != nil {
				return fmt.Errorf("measure a stage: %w", err)
			}
			r := pipelineResult{StageVsRaw: s.Settings[0].Ratio, StageVsCeiling: s.Settings[0].ToCeiling}
			if r.Result, err = rollouts.Run(cmd.Context(), o, func(now string) { show.Show("%s", now) }); err != nil {
				return fmt.Errorf("measure the pipeline: %w", err)
			}
			return app.Show(cmd, g, r, func(w io.Writer) error { return printPipeline(w, r) })
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Rollouts, "rollouts", 800, "rollouts that are open at once")
	flags.IntVar(&o.Turns, "turns", 4, "turns of a rollout")
	flags.IntVar(&o.Tokens, "tokens", 128, "tokens that are sampled in a turn")
	flags.IntVar(&o.Open, "open", 0, "also measure the memory of so many open rollouts")
	return cmd
}

// pipelineResult is what the pipeline does, beside one stage of it alone (rondo-bench stage).
type pipelineResult struct {
	rollouts.Result
	StageVsRaw     float64 `json:"stage_vs_raw"`     // throughput of the service runtime, by that of workers on nats.go
	StageVsCeiling float64 `json:"stage_vs_ceiling"` // by that of nats.go without waiting for any answer
}

func printPipeline(w io.Writer, r pipelineResult) error {
	fmt.Fprintf(w, "%d rollouts of %d turns, %d sampled tokens a turn; %s, %d CPUs\n\n", r.Rollouts, r.Turns, r.Tokens, r.Go, r.CPUs)
	fmt.Fprintf(w, "one stage: %.2f of the throughput of workers on nats.go, %.2f of nats.go that waits for nothing\n\n", r.StageVsRaw, r.StageVsCeiling)
	fmt.Fprintf(w, "all at once: %.0f rollouts/s, %.0f events/s, %.1f ms of processor time for a rollout\n\n", r.RolloutsPerSecond, r.EventsPerSecond, r.CPUPerRollout)
	t := app.NewTable("AT HALF LOAD", "P50 ms", "P99 ms")
	row := func(name string, p50, p99 float64) { t.Row(name, fmt.Sprintf("%.2f", p50), fmt.Sprintf("%.2f", p99)) }
	row("nats.go alone: event to event", r.Raw.P50, r.Raw.P99)
	for _, s := range r.Stages {
		row(s.Name, s.P50, s.P99)
	}
	row("added by all stages", r.AddedP50, r.AddedP99)
	if err := t.Print(w); err != nil || r.Open == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d rollouts open: %.2f GiB\n", r.Open, r.OpenGiB)
	return err
}
