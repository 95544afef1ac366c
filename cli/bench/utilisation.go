package bench

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/bench/utilisation"
	"github.com/rondo-rl/rondo/cli/app"
)

func newBenchUtilisation(g *app.Global) *cobra.Command {
	o := utilisation.DefaultOptions()
	cmd := &cobra.Command{
		Use:   "utilisation",
		Short: "Simulate how busy a barrier, a queue of batches, a plain asynchronous schedule and Rondo keep an inference server",
		Long: `The benchmark simulates training in virtual time, with an inference server, tools, verifiers and a trainer. Turns, tokens and tool times
have long tails. A server that always samples at its peak is the ideal. All schedules get the same groups in the same order:

  barrier  a batch's rollouts all end before it is trained on, and the next batch begins after that
  queue    the next batch is sampled while one is trained on, and begins when all rollouts of the one before have ended
  async    the plainest asynchronous schedule: as many rollouts in flight as the run's in_flight (96 where that is no number), groups are trained on as they
           end, and dropped where they are too old
  rondo    the real deciders of query sampler, advantage calculator and trainer feeder, with the run's staleness and in_flight
  rondo, a new run file
           the same with the staleness and in_flight of a run file that names neither

The workloads are agents (coding agents), tests (the same with slow tools), long (rollouts of 100,000 to a million tokens) and equal (a check: one turn
each, all alike, so that every schedule keeps the server busy). The server computes a prompt before the first token, but for what it has kept of the
conversation. It forgets that when its memory is full and when it takes up new weights.

Turns reach the server by the generator's own rules in every schedule. busy is the part of the ideal's tokens that were sampled, and trained the part that
was trained on. A group that is too old is sampled in vain. cached is the part of the prompts that the server had kept.

sharing shows how runs share the slots of one service: the parts of the slots' time that runs had which always have calls.

The same seed gives the same figures. No plane is touched, and no accelerator is needed.`,
		Example: `  rondo-bench utilisation
  rondo-bench utilisation --staleness 1 --in-flight 0     # beside a new run file's
  rondo-bench utilisation --workload equal --train 0      # a check: without tails all of them are near 1
  rondo-bench utilisation --tool-slots 10
  rondo-bench utilisation --seed 7 --steps 100 --json`,
	}
	measure := func(_ context.Context, show *app.Progress) (utilisation.Result, error) {
		return utilisation.Run(o, func(line string) { show.Line("%s", line) })
	}
	f := cmd.Flags()
	f.Int64Var(&o.Seed, "seed", o.Seed, "of the rollouts' lengths and of the run")
	f.StringSliceVar(&o.Workloads, "workload", o.Workloads,
		"what rollouts do: agents, tests, long or equal, several with commas")
	f.IntVar(&o.Steps, "steps", o.Steps, "training steps that are measured, behind those in which the load builds up")
	f.IntVar(&o.Groups, "groups", o.Groups, "groups of a batch")
	f.IntVar(&o.GroupSize, "group-size", o.GroupSize, "rollouts of a group")
	f.Int64Var(&o.Staleness, "staleness", o.Staleness, "staleness.max of Rondo's run")
	f.Var(&o.InFlight, "in-flight",
		"in_flight of Rondo's run: rollouts under way at once; 0 leaves that to the staleness, auto follows the server's load")
	f.IntVar(&o.Generators, "generators", o.Generators, "generators that ask the server")
	f.BoolVar(&o.Restart, "restart", o.Restart, "the server restarts once while it is measured, and is cold then")
	f.IntVar(&o.ToolSlots, "tool-slots", o.ToolSlots, "slots of all tool runners together; 0: there are always enough")
	f.Float64Var(&o.Train, "train", o.Train,
		"time of a training step, as a part of the time in which an always busy server samples a batch")
	return measuring(g, "utilisation", cmd, measure)
}
