package bench

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/bench/scale"
	"github.com/rondo-rl/rondo/cli/app"
)

func newBenchScale(g *app.Global) *cobra.Command {
	l, dir := scale.DefaultLoad(), ""
	cmd := &cobra.Command{
		Use:   "scale",
		Short: "Derive what a load takes from what was measured: nodes, bytes, requests, money, and what ends first",
		Long: `Scale measures nothing. It derives what so many rollouts a day take from the results of rondo-bench pipeline, long, sandbox and feed, and
says of each figure how it comes about. At last it lists the limits: how many rollouts a day each allows, and what one does then.

The results of one machine of two cores are part of the program. Yours are better:

  mkdir measured
  rondo-bench pipeline --open 100000 --json >measured/pipeline.json
  rondo-bench long --json >measured/long.json
  rondo-bench sandbox --json >measured/sandbox.json
  rondo-bench feed --json >measured/feed.json
  rondo-bench scale --measured measured`,
		Example: "  rondo-bench scale\n  rondo-bench scale --rollouts 20000 --sandboxes 500 --turns 100\n  rondo-bench scale --json",
	}
	measure := func(_ context.Context, _ *app.Progress) (scale.Plan, error) {
		m, err := scale.Recorded()
		if dir != "" {
			m, err = scale.Read(os.DirFS(dir))
		}
		if err != nil {
			return scale.Plan{}, err
		}
		return scale.Derive(m, l)
	}
	f := cmd.Flags()
	f.StringVar(&dir, "measured", "",
		"directory with pipeline.json, long.json, sandbox.json and feed.json in the place of the program's own")
	f.Float64Var(&l.Rollouts, "rollouts", l.Rollouts, "rollouts a day")
	f.Float64Var(&l.Sandboxes, "sandboxes", l.Sandboxes, "sandboxes that are open at once")
	f.IntVar(&l.Turns, "turns", l.Turns, "turns of a rollout")
	f.Float64Var(&l.Sampled, "sampled", l.Sampled, "tokens that are sampled in a turn")
	f.Float64Var(&l.Prompt, "prompt", l.Prompt, "new tokens of a turn's prompt")
	f.Float64Var(&l.Changing, "changing", l.Changing, "part of the turns that change files")
	f.Float64Var(&l.Memory, "memory", l.Memory, "MiB that the programs in a sandbox use")
	f.Float64Var(&l.Peak, "peak", l.Peak, "how many times the mean the busiest hour has")
	f.Float64Var(&l.Keep, "days", l.Keep, "days that runs, trajectories and batches are kept")
	f.Float64Var(&l.Cores, "cores", l.Cores, "cores of a node")
	f.Float64Var(&l.NodeGiB, "node-memory", l.NodeGiB, "GiB of a node")
	f.Float64Var(&l.Put, "write-price", l.Put, "USD for 1,000 writes to the store")
	f.Float64Var(&l.Get, "read-price", l.Get, "USD for 1,000 reads")
	f.Float64Var(&l.Month, "space-price", l.Month, "USD for a GB and month")
	return measuring(g, "the scale", cmd, measure)
}
