package bench

import (
	"fmt"
	"io"
	"strconv"

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
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show := app.NewProgress(g)
			r, err := agent.Run(cmd.Context(), o, func(line string) { show.Line("%s", line) }, func(now string) { show.Show("%s", now) })
			if err != nil {
				return fmt.Errorf("measure agents: %w", err)
			}
			return app.Show(cmd, g, r, func(w io.Writer) error { return printAgent(w, r) })
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Rollouts, "rollouts", 32, "rollouts of either side, a multiple of 4")
	flags.IntVar(&o.Turns, "turns", 20, "turns of a rollout")
	flags.IntVar(&o.Tokens, "tokens", 128, "tokens that are sampled in a turn")
	flags.IntVar(&o.AtOnce, "at-once", 4, "rollouts that are under way at once")
	flags.IntVar(&o.Pairs, "pairs", 3, "turns of either side")
	flags.BoolVar(&o.AllowInsecure, "allow-insecure", false, "run tools and agents without isolation where the kernel refuses it")
	return cmd
}

func printAgent(w io.Writer, r agent.Result) error {
	fmt.Fprintf(w, "%d rollouts of %d turns, %d at once, %d sampled tokens a turn; %s, %d CPUs; medians of %d pairs\n\n",
		r.Rollouts, r.Turns, r.AtOnce, r.Tokens, r.Go, r.CPUs, r.Pairs)
	t := app.NewTable("ROLLOUTS BY", "ROLLOUTS/S", "CPU ms EACH", "OF AGENTS THEMSELVES")
	t.Row("the plane's loop", fmt.Sprintf("%.1f", r.Loop.RolloutsPerSecond), fmt.Sprintf("%.1f", r.Loop.CPU), "")
	t.Row("agents", fmt.Sprintf("%.1f", r.Agent.RolloutsPerSecond), fmt.Sprintf("%.1f", r.Agent.CPU), fmt.Sprintf("%.1f", r.Agent.Own))
	if err := t.Print(w); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nagents take %.2f of the loop's processor time; one that is started anew takes %.2f ms for each of %d recorded turns\n\n",
		r.Ratio, 1000*r.RestartSeconds, r.Recorded)
	t = app.NewTable("AT HALF LOAD", "TURNS/S", "P50 ms", "P99 ms", "PROXY P50 ms", "PROXY P99 ms")
	for _, row := range []struct {
		what string
		agent.Beside
	}{{"whole answers of agents", r.Whole}, {"first words of harnesses' streams", r.First}} {
		figure := func(v float64) string { return fmt.Sprintf("%.2f", v) }
		t.Row(row.what, fmt.Sprintf("%.0f", row.PerSecond), figure(row.Gateway.P50), figure(row.Gateway.P99), figure(row.Proxy.P50), figure(row.Proxy.P99))
	}
	return t.Print(w)
}

// figure has three digits that count.
func figure(v float64) string {
	if v >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
