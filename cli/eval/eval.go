// Package eval is the command that evaluates policies.
package eval

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/service"
	"github.com/rondo-rl/rondo/evaluation"
	"github.com/rondo-rl/rondo/events/runfile"
)

// evalOptions are the flags of `rondo eval`.
type evalOptions struct {
	policy, tasks, file, endpoint string
	k                             []int
	attempts                      int
	seed                          int64
	temperature                   float64
	turns                         int
	inFlight                      runfile.InFlight
	run, out                      string
	passAt, minPass               float64
	against                       string
	from                          string
	set                           []string
	logprobs                      string
	follow                        bool
	since, until                  int64
}

// New makes the command `rondo eval`.
func New(g *app.Global) *cobra.Command {
	s := service.DefaultSettings()
	standard := runfile.DefaultRunConfig()
	o := evalOptions{
		k: []int{1}, seed: 1, temperature: standard.Sampling.Temperature, turns: standard.Limits.Turns,
		endpoint: runfile.BuiltinEndpoint, passAt: 1, since: -1,
	}
	var asked []string // flags of the command line
	cmd := &cobra.Command{
		Use:   "eval --policy NAME[@VERSION] [--tasks PACK] | eval --from RUN",
		Short: "Measure how good a policy is: pass@k, rewards and costs with intervals, compared and gated",
		Long: `Eval tries every task of a pack --attempts times with one version of a policy, by default the current one, and
reports how many attempts pass. An evaluation is a run without a trainer: it can be shown, audited, verified,
exported and deleted. Without a plane in --dir, eval runs the services itself. The same command continues an interrupted
evaluation and shows a complete one again. Another --seed or --run measures anew.

Eval requests a pinned version as the model NAME@VERSION, and NAME without a version. The built-in policy serves every
published version under that name, and the untrained policy as version 0. Other inference servers must serve that name, too.

Figures are means over tasks. The intervals (95 %) come from resampling whole tasks. Attempts that failed for reasons of the
infrastructure have no reward: they count as failed and in no other figure. An attempt whose agent damaged its tests or its
sandbox did not pass; "ended" shows how many attempts were forfeited in this way, and why.

--against compares with another run or version, task by task, with a paired permutation test, and lists the conditions in which
the two differ (sampling, limits, tools, scorer, tasks). --min-pass is a gate.
--from summarises the rollouts of a recorded run instead of new ones: with their recorded rewards, with other weights (--set
scorer.weights.x=1), or with the tests of --tasks PACK. With --logprobs FILE it estimates by importance sampling the reward that
another policy would get: JSON Lines of {"rollout": ID, "logprobs": […]}, one log-probability for each sampled token.
--follow evaluates every version that is published from now on, or since a version, and draws the curve.

The exit code is 0, or 2 when pass@1 is below --min-pass or significantly worse than --against, or 1 without a result: an
evaluation that was closed early, or without any scored attempt, passes no gate.`,
		Example: `  rondo eval --policy repair-demo-1 --k 4
  rondo eval --policy repair-demo-1@12 --against repair-demo-1@0 --k 4 --out report
  rondo eval --policy my-model --endpoint http://127.0.0.1:8000/v1 --tasks ./held-out --k 1,8 --min-pass 0.6
  rondo eval --from demo-1 --against demo-2
  rondo eval --from demo-1 --tasks ./stricter-tests
  rondo eval --from demo-1 --logprobs candidate.jsonl
  rondo eval --policy repair-demo-1 --follow --since 0 --out report`,
		Args: func(cmd *cobra.Command, args []string) error {
			// before the environment and files set others
			cmd.Flags().Visit(func(f *pflag.Flag) { asked = append(asked, f.Name) })
			return cobra.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Check(func(name string) bool { return slices.Contains(asked, name) }); err != nil {
				return err
			}
			e := &evaluator{cmd: cmd, g: g, o: o, s: s, given: cmd.Flags().Changed, show: app.NewProgress(g)}
			switch {
			case o.from != "":
				return e.recorded(cmd.Context())
			case o.follow:
				return e.follow(cmd.Context())
			}
			return e.once(cmd.Context())
		},
	}
	o.AddFlags(cmd.Flags())
	s.AddSlotFlags(cmd)
	s.AddSandboxFlags(cmd)
	return cmd
}

func (o *evalOptions) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&o.policy, "policy", "", "policy to evaluate: NAME, or NAME@VERSION")
	f.StringVar(&o.tasks, "tasks", "",
		"task pack: a folder of Harbor task folders (default: the pack small, which the demo trains on); with --from, whose tests score again")
	f.StringVar(&o.file, "file", "", "run file (YAML) with other settings: limits, sampling, scorer, pool, endpoint")
	f.StringVar(&o.endpoint, "endpoint", o.endpoint, "base URL of the inference server, or builtin")
	f.IntSliceVar(&o.k, "k", o.k, "k of pass@k, one or several")
	f.IntVar(&o.attempts, "attempts", 0, "attempts at each task (default: the largest k)")
	f.Int64Var(&o.seed, "seed", o.seed, "seed of task order, sampling and intervals")
	f.Float64Var(&o.temperature, "temperature", o.temperature, "sampling temperature")
	f.IntVar(&o.turns, "turns", o.turns, "turns of an attempt at most")
	f.Var(&o.inFlight, "in-flight",
		"attempts that are under way at once, or auto, the default: as many as wait for turns that the servers can sample at once")
	f.StringVar(&o.run, "run", "", "name of the run (default: made of policy, version and settings)")
	f.StringVar(&o.out, "out", "", "folder for report.json, report.md, report.html and junit.xml")
	f.Float64Var(&o.passAt, "pass-at", o.passAt, "reward from which on an attempt passes")
	f.Float64Var(&o.minPass, "min-pass", 0, "exit with 2 when pass@1 is lower")
	f.StringVar(&o.against, "against", "",
		"compare with this RUN or NAME@VERSION; exit with 2 when pass@1 is significantly worse")
	f.StringVar(&o.from, "from", "", "summarise the rollouts of this recorded run")
	f.StringArrayVar(&o.set, "set", nil,
		"with --from, score again with another setting: scorer.PATH=VALUE, as in a run file")
	f.StringVar(&o.logprobs, "logprobs", "",
		"with --from, a candidate's log-probabilities of the recorded tokens (JSON Lines)")
	f.BoolVar(&o.follow, "follow", false, "evaluate every version that is published, until interrupted")
	f.Int64Var(&o.since, "since", o.since,
		"with --follow, the first version; 0 is the untrained policy (default: the next one)")
	f.Int64Var(&o.until, "until", 0, "with --follow, the last version (default: none)")
}

// What one attempt, one command and one candidate may ask for.
const mostAttempts = 10_000

// Check refuses flags that do not go together, before anything is started.
func (o *evalOptions) Check(given func(string) bool) error {
	only := func(with bool, mode string, names ...string) error {
		for _, name := range names {
			if !with && given(name) {
				return fmt.Errorf("--%s is for %s", name, mode)
			}
		}
		return nil
	}
	if (o.policy == "") == (o.from == "") {
		return errors.New("say what to evaluate: --policy NAME[@VERSION] tries tasks, --from RUN takes recorded rollouts")
	}
	if err := errors.Join(
		only(o.from != "", "--from RUN", "set", "logprobs"),
		only(o.from == "", "--policy", "file", "endpoint", "attempts", "temperature", "turns",
			"in-flight", "run", "follow"),
		only(o.follow, "--follow", "since", "until"),
		only(!o.follow, "one evaluation, not for --follow", "against", "min-pass"),
	); err != nil {
		return err
	}
	largest := 0
	for _, k := range o.k {
		if largest = max(largest, k); k < 1 {
			return fmt.Errorf("--k %d: must be at least 1", k)
		}
	}
	if o.attempts == 0 {
		o.attempts = largest
	}
	switch {
	case o.passAt == 0:
		return errors.New("--pass-at 0: give a reward above or below 0, such as 0.001")
	case o.attempts < largest:
		return fmt.Errorf("--attempts %d: pass@%d needs as many", o.attempts, largest)
	case o.attempts > mostAttempts:
		return fmt.Errorf("%d attempts at each task: at most %d", o.attempts, mostAttempts)
	case !(o.minPass >= 0 && o.minPass <= 1):
		return fmt.Errorf("--min-pass %g: must be 0 to 1", o.minPass)
	case o.out != "" && given("out") && slices.Contains([]string{"/", "."}, o.out):
		return fmt.Errorf("--out %s: name a folder for the report", o.out)
	}
	return nil
}

// figures are how figures are made of attempts.
func (o *evalOptions) figures() evaluation.Options {
	return evaluation.Options{K: o.k, PassAt: o.passAt, Seed: o.seed}
}
