package eval

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/service"
	"github.com/rondo-rl/rondo/evaluation"
	"github.com/rondo-rl/rondo/evaluation/release"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// releaseOptions are the flags of `rondo release`, beside those that it shares with `rondo eval`.
type releaseOptions struct {
	evalOptions
	when       release.Options
	rules      events.JudgementRules
	minReward  float64
	minPass    float64
	canaryFor  time.Duration
	production []string
	once       bool
	verify     bool
}

// NewRelease makes the command `rondo release`.
func NewRelease(g *app.Global) *cobra.Command {
	s := service.DefaultSettings()
	standard := runfile.DefaultRunConfig()
	o := releaseOptions{
		evalOptions: evalOptions{
			k: []int{1}, attempts: 4, seed: 1, temperature: standard.Sampling.Temperature, turns: standard.Limits.Turns,
			endpoint: runfile.BuiltinEndpoint, passAt: 1, since: -1,
		},
		when: release.Options{Share: 0.1},
		rules: events.JudgementRules{By: release.ByReward, MaxLoss: 0.05, MaxFailed: 0.2, Rollouts: 100,
			Confidence: 0.95, Resamples: 10_000},
		canaryFor: 24 * time.Hour,
	}
	cmd := &cobra.Command{
		Use:   "release POLICY",
		Short: "Judge new versions of a policy, try them on a share of production, and promote or take them back",
		Args:  cobra.ExactArgs(1),
		Long: `Release takes the newest version of a policy when it is due, and lets it take the promoted one's place in three steps:

  1. Gate: it evaluates both versions on the held-out tasks of --tasks, as ` + "`rondo eval --against`" + ` does, and holds the figures to the rules.
  2. Canary: a version that has passed gets --canary-share of the rollouts in production, until --canary-rollouts of them and as many others have an
     outcome, and is compared with the others.
  3. The version is promoted, or taken back.

A version passes if the interval of the difference to the promoted one, in --by, reaches at most --max-loss below 0, and no other rule is broken. What is
not known to be as good does not pass: give the gate tasks and attempts enough, and the canary rollouts enough, for an interval that narrow.

Each judgement is a fact on the policy's chain (weights.judged), with its rules, its figures and the recorded rollouts that they are of, and each
promotion names the judgement that it follows from. All else follows from these facts: a command that was killed goes on where it was, and two
at once judge once. A promotion or a rollback by hand stands: nothing follows from a judgement before it. --verify makes all judgements again.

Where nothing is promoted, release promotes the newest version, unjudged, so that later ones get no rollouts before they are judged. The side-car of a few
servers needs --canary, or the rollouts of the share wait (` + "`rondo weights fetch --help`" + `). Without a plane in --dir, release runs the services itself.

With --once it does what is due and ends: the exit code is 2 if a version that it judged did not pass. Flags can stand in a file (--config).`,
		Example: `  rondo release my-model --tasks ./held-out --attempts 8 --every 6h
  rondo release my-model --tasks ./held-out --min-pass 0.4 --max-loss 0.02 --canary-share 0.05 --run product
  rondo release my-model --tasks ./held-out --canary-share 0 --once --json
  rondo release my-model --config release.yaml
  rondo release my-model --verify`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.policy = args[0]
			if err := o.check(cmd.Flags().Changed); err != nil {
				return err
			}
			r := &releaser{o: o, e: &evaluator{cmd: cmd, g: g, o: o.evalOptions, s: s, given: cmd.Flags().Changed,
				show: app.NewProgress(g)}}
			if o.verify {
				return withPlane(cmd.Context(), g, r.verify)
			}
			return r.e.prepared(cmd.Context(), r.check, r.run)
		},
	}
	o.addFlags(cmd.Flags())
	s.AddSlotFlags(cmd)
	s.AddSandboxFlags(cmd)
	return cmd
}

func (o *releaseOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.tasks, "tasks", "", "held-out tasks: a folder of Harbor task folders (default: the pack small)")
	f.StringVar(&o.file, "file", "",
		"run file (YAML) with other settings of the evaluations: limits, sampling, scorer, pool, endpoint")
	f.StringVar(&o.endpoint, "endpoint", o.endpoint,
		"base URL of the inference server of the evaluations, which serves POLICY@VERSION, or builtin")
	f.IntVar(&o.attempts, "attempts", o.attempts, "attempts at each held-out task")
	f.Int64Var(&o.seed, "seed", o.seed, "seed of task order, sampling and statistics")
	f.Float64Var(&o.temperature, "temperature", o.temperature, "sampling temperature of the evaluations")
	f.IntVar(&o.turns, "turns", o.turns, "turns of an attempt at most")
	f.Var(&o.inFlight, "in-flight",
		"attempts that are under way at once, or auto, the default: as many as wait for turns that the servers can sample at once")
	f.Float64Var(&o.passAt, "pass-at", o.passAt, "reward from which on an attempt passes")

	f.DurationVar(&o.when.Every, "every", 0, "time between two gates (default: each version is due)")
	f.IntVar(&o.when.Versions, "every-versions", 0, "versions between two gates; with --every, whichever comes first")

	f.StringVar(&o.rules.By, "by", o.rules.By, "figure that decides: reward or pass@1")
	f.Float64Var(&o.minReward, "min-reward", 0, "mean reward that a version must reach; without it none")
	f.Float64Var(&o.minPass, "min-pass", 0, "pass@1 that a version must reach; without it none")
	f.BoolVar(&o.rules.Better, "better", false, "promote only versions that are significantly better")
	f.Float64Var(&o.rules.MaxLoss, "max-loss", o.rules.MaxLoss,
		"how far below the promoted version the interval of the difference may reach")
	f.Float64Var(&o.rules.MaxFailed, "max-failed", o.rules.MaxFailed,
		"share of failed attempts above which there is no result")
	f.Float64Var(&o.rules.Confidence, "confidence", o.rules.Confidence,
		"confidence of the intervals, and 1 - the level of significance")

	f.Float64Var(&o.when.Share, "canary-share", o.when.Share,
		"share of production that a version gets after its gate; 0 promotes it at once")
	f.IntVar(&o.rules.Rollouts, "canary-rollouts", o.rules.Rollouts,
		"outcomes that a canary needs, of the version and of the other one")
	f.DurationVar(&o.canaryFor, "canary-for", o.canaryFor,
		"time after which a canary without enough outcomes is taken back")
	f.StringArrayVar(&o.production, "run", nil,
		"run whose rollouts count for the canary, may be given several times (default: all of the policy)")

	f.BoolVar(&o.once, "once", false, "do what is due, and end")
	f.BoolVar(&o.verify, "verify", false, "make all judgements again from the recorded rollouts, and compare")
}

// check refuses what makes no sense, before anything is started.
func (o *releaseOptions) check(given func(string) bool) error {
	if _, err := evaluation.ParseSubject(o.policy); err != nil {
		return err
	}
	for name, p := range map[string]struct {
		value float64
		into  **float64
	}{"min-reward": {o.minReward, &o.rules.MinReward}, "min-pass": {o.minPass, &o.rules.MinPass}} {
		if given(name) {
			*p.into = &p.value
		}
	}
	o.rules.PassAt, o.rules.Seed = o.passAt, o.seed
	switch {
	case o.once && o.verify:
		return errors.New("--once releases, and --verify does not: give one of them")
	case o.attempts < 1 || o.attempts > mostAttempts:
		return fmt.Errorf("--attempts %d: must be 1 to %d", o.attempts, mostAttempts)
	case o.passAt == 0:
		return errors.New("--pass-at 0: give a reward above or below 0, such as 0.001")
	case o.rules.By != release.ByReward && o.rules.By != release.ByPass:
		return fmt.Errorf("--by %q: must be %s or %s", o.rules.By, release.ByReward, release.ByPass)
	case math.IsInf(o.minReward, 0) || math.IsNaN(o.minReward):
		return fmt.Errorf("--min-reward %g: must be a number", o.minReward)
	case !(o.minPass >= 0 && o.minPass <= 1):
		return fmt.Errorf("--min-pass %g: must be 0 to 1", o.minPass)
	case !(o.rules.MaxLoss >= 0) || math.IsInf(o.rules.MaxLoss, 0):
		return fmt.Errorf("--max-loss %g: must be at least 0, and a number", o.rules.MaxLoss)
	case !(o.rules.MaxFailed >= 0 && o.rules.MaxFailed <= 1):
		return fmt.Errorf("--max-failed %g: must be 0 to 1", o.rules.MaxFailed)
	case !(o.rules.Confidence > 0 && o.rules.Confidence < 1):
		return fmt.Errorf("--confidence %g: must be between 0 and 1, such as 0.95", o.rules.Confidence)
	case !(o.when.Share >= 0 && o.when.Share < 1):
		return fmt.Errorf("--canary-share %g: must be at least 0 and below 1", o.when.Share)
	case o.rules.Rollouts < 2:
		return fmt.Errorf("--canary-rollouts %d: must be at least 2", o.rules.Rollouts)
	case o.when.Every < 0 || o.when.Versions < 0 || o.canaryFor <= 0:
		return errors.New("--every, --every-versions: must be at least 0; --canary-for: above 0")
	}
	return nil
}
