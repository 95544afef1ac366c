package bench

import (
	"context"
	"fmt"
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
	}
	measure := func(ctx context.Context, show *app.Progress) (pipelineResult, error) {
		s, err := stage.Run(ctx, stage.Options{Events: 5000, Pairs: 3,
			Durability: []time.Duration{100 * time.Millisecond}}, func(now string) { show.Show("%s", now) })
		if err != nil {
			return pipelineResult{}, fmt.Errorf("one stage: %w", err)
		}
		r := pipelineResult{StageVsRaw: s.Settings[0].Ratio, StageVsCeiling: s.Settings[0].ToCeiling}
		if r.Result, err = rollouts.Run(ctx, o, func(now string) { show.Show("%s", now) }); err != nil {
			return pipelineResult{}, err
		}
		return r, nil
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Rollouts, "rollouts", 800, "rollouts that are open at once")
	flags.IntVar(&o.Turns, "turns", 4, "turns of a rollout")
	flags.IntVar(&o.Tokens, "tokens", 128, "tokens that are sampled in a turn")
	flags.IntVar(&o.Open, "open", 0, "also measure the memory of so many open rollouts")
	return measuring(g, "the pipeline", cmd, measure)
}

// pipelineResult is what the pipeline does, beside one stage of it alone (rondo-bench stage).
type pipelineResult struct {
	rollouts.Result
	StageVsRaw     float64 `json:"stage_vs_raw"`     // throughput of the service runtime, by that of workers on nats.go
	StageVsCeiling float64 `json:"stage_vs_ceiling"` // by that of nats.go without waiting for any answer
}
