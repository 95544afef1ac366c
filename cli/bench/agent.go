package bench

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/bench/agent"
	"github.com/rondo-rl/rondo/cli/app"
)

func newBenchAgent(g *app.Global) *cobra.Command {
	var o agent.Options
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "What an agent of one's own costs beside the plane's loop, and what the gateway adds to its requests",
		Long: `Agent runs the same rollouts by the plane's own loop and by a null agent, a program in a sandbox that asks the gateway for each turn and
reads the lines of a file that the turn calls for. The services are the real ones, on an embedded log in this process, but for the scorer,
which answers at once, as the scripted inference server does. Both sides take turns.

agent_vs_loop_cpu compares the processor time of their rollouts, with all that runs in sandboxes but the null agents themselves, which is
shown apart. restart_s_per_turn is how long an agent takes that is started anew behind 100 recorded turns, until it asks for a new one, for
each of these turns. gateway_added_ms_p50 and gateway_added_ms_p99 are what the gateway adds to an agent's request at half load, and
gateway_first_token_added_ms_p50 and _p99 what it adds to the time until the first words of a harness's stream: percentiles as clients see
them, less those of the same requests by a bare proxy (httputil.ReverseProxy) in the same run. The benchmark removes everything that it
created, and touches no plane.`,
		Example: "  rondo-bench agent\n  rondo-bench agent --rollouts 64 --at-once 8 --json",
	}
	measure := func(ctx context.Context, show *app.Progress) (agent.Result, error) {
		return agent.Run(ctx, o, func(line string) { show.Line("%s", line) }, func(now string) { show.Show("%s", now) })
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Rollouts, "rollouts", 32, "rollouts of either side, a multiple of 4")
	flags.IntVar(&o.Turns, "turns", 20, "turns of a rollout")
	flags.IntVar(&o.Tokens, "tokens", 128, "tokens that are sampled in a turn")
	flags.IntVar(&o.AtOnce, "at-once", 4, "rollouts that are under way at once")
	flags.IntVar(&o.Pairs, "pairs", 3, "turns of either side")
	flags.BoolVar(&o.AllowInsecure, "allow-insecure", false,
		"run tools and agents without isolation where the kernel refuses it")
	return measuring(g, "agents", cmd, measure)
}
