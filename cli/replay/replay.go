// Package replay has the commands that make recorded decisions again, and compare runs.
package replay

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/cli/service"
	"github.com/rondo-rl/rondo/replay"
)

// New is the command replay.
func New(g *app.Global) *cobra.Command {
	o := replayOptions{Settings: service.DefaultSettings()}
	o.slots = o.ScorerSlots
	cmd := &cobra.Command{
		Use:   "replay RUN --verify | replay RUN --tools | replay RUN --as NEW [--set PATH=VALUE]...",
		Short: "Repeat a run's decisions, tool calls or scores and compare, or try another configuration",
		Long: `Replay --verify makes every decision of the run again (groups opened, rollouts started and ended, advantages, batches with
their files, drops), from the recorded events, sequence and clock alone, and compares the results byte for byte. Rewards must
follow from their recorded components. It reads the log once, uses no local state, and its memory does not grow with the run.
If something differs, it names the value and exits with 2.

Replay --tools runs the recorded tool calls again in fresh sandboxes, turn by turn, and then the verifiers over the recorded
final workspaces. It reports each answer, workspace or verdict that differs from the record by rollout, turn, call and field, and
exits with 2. It does not compare times and durations, the kind of sandbox, and what verifiers print. After a workspace that
differs, the next turn begins with the recorded one.

Replay --as makes a new run from the recorded one. It copies rollouts with their turns, tools and rewards, and decides
advantages, drops and batches again with the settings of --set: advantage.estimator=rloo, advantage.preset=verl,
staleness.max=2, filters.zero_variance=true, feeds.0.groups_per_batch=4. The new run can be audited, verified, exported and
read by trainers like any other. Its trainer takes batches when the recorded trainer did. The same command continues an
interrupted replay.

Replay --as NEW --from scores also makes the rewards again: from the recorded components with other weights (--set
scorer.weights.NAME=W) or another threshold (--set scorer.threshold=T), or by running the verifiers over the recorded final
workspaces (--rerun-verifiers), with the tests of another task pack (--tasks). Rewards of users and outsiders are not verified again.`,
		Example: `  rondo replay demo-1 --verify --json
  rondo replay demo-1 --tools --rollouts 20 --slots 4
  rondo replay demo-1 --as demo-1-rloo --set advantage.estimator=rloo
  rondo replay demo-1 --as demo-1-fresh --set staleness.max=0 --from batches
  rondo replay demo-1 --as demo-1-strict --from scores --set scorer.threshold=1
  rondo replay demo-1 --as demo-1-mended --from scores --tasks ./tasks-with-mended-tests
  rondo diff demo-1 demo-1-rloo`,
		Args: func(cmd *cobra.Command, args []string) error {
			// before the environment and files set others
			cmd.Flags().Visit(func(f *pflag.Flag) { o.given = append(o.given, f.Name) })
			return cobra.ExactArgs(1)(cmd, args)
		},
		PreRunE: o.check,
		RunE: plane.RunCommand(g, func(cmd *cobra.Command, args []string, p *plane.Plane) error {
			switch {
			case o.tools:
				return replayTools(cmd, g, p, args[0], o)
			case o.as != "":
				return replayAs(cmd, g, p, args[0], o)
			}
			return replayVerify(cmd, g, p, args[0])
		}),
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.verify, "verify", false, "recompute every decided fact and compare")
	flags.BoolVar(&o.tools, "tools", false, "run every recorded tool call and verifier again and compare")
	flags.StringSliceVar(&o.rollouts, "rollouts", nil,
		"with --tools: how many rollouts, or the ids of some (default: all)")
	flags.IntVar(&o.slots, "slots", o.slots, "rollouts whose tools or verifiers run at once")
	flags.StringVar(&o.as, "as", "", "make a new run of this name")
	flags.StringArrayVar(&o.set, "set", nil, "with --as: change a setting of the new run: PATH=VALUE, as in a run file")
	flags.StringVar(&o.from, "from", replay.FromAdvantages,
		"with --as: first stage that is made again: scores, advantages or batches")
	flags.BoolVar(&o.rerun, "rerun-verifiers", false,
		"with --from scores: run the verifiers again instead of composing what they reported")
	flags.StringVar(&o.tasks, "tasks", "", "with --from scores: run the verifiers with the tests of this task pack")
	flags.Uint64Var(&o.to, "to", 0, "with --as: last sequence that is copied (default: all)")
	o.AddSandboxFlags(cmd)
	return cmd
}

// check refuses flags that do not go together: one that is not heeded would let a replay
// look like what it is not.
func (o *replayOptions) check(cmd *cobra.Command, _ []string) error {
	modes := 0
	for _, chosen := range []bool{o.verify, o.tools, o.as != ""} {
		if chosen {
			modes++
		}
	}
	if modes != 1 {
		return errors.New("say what to do: --verify makes every decision again and compares, --tools runs every tool call again and compares, --as NEW makes a run of other decisions")
	}
	for flag, ok := range map[string]bool{
		"set": o.as != "", "from": o.as != "", "to": o.as != "", "rollouts": o.tools,
		"rerun-verifiers": o.from == replay.FromScores && o.as != "",
		"tasks":           o.from == replay.FromScores && o.as != "",
	} {
		if slices.Contains(o.given, flag) && !ok {
			return fmt.Errorf("--%s does not go with the other flags: %s", flag, cmd.Flag(flag).Usage)
		}
	}
	if o.slots < 1 || o.slots > 1024 {
		return fmt.Errorf("--slots %d: must be 1 to 1024", o.slots)
	}
	for _, setting := range o.set {
		path, _, _ := strings.Cut(setting, "=")
		if section, _, _ := strings.Cut(path, "."); section == replay.ScorerSection && o.from != replay.FromScores {
			return fmt.Errorf("--set %.80q: recorded rewards are kept unless scores are made again: add --from %s",
				setting, replay.FromScores)
		}
	}
	return nil
}
