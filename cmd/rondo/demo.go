package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/ledger"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/tasks"
)

// demoOptions are the demo's own flags.
type demoOptions struct {
	steps      int64
	seed       int64
	tasks      string
	groups     int
	groupSize  int
	shuffle    bool
	search     bool
	large      bool
	durability string
	insecure   bool // of the services; the run says so too
}

// demoResult is the last line of `rondo demo --json`.
type demoResult struct {
	Run           string    `json:"run"`
	Steps         int       `json:"steps"`
	Groups        int64     `json:"groups"`
	Rollouts      int       `json:"rollouts"`
	Trained       int       `json:"trained"`
	Stale         int       `json:"stale"`
	Filtered      int       `json:"filtered"`
	Failed        int       `json:"failed"`
	InFlight      int       `json:"in_flight"`
	RewardFirst   float64   `json:"reward_first"` // mean of the first quarter of the steps
	RewardLast    float64   `json:"reward_last"`  // mean of the last quarter
	Rewards       []float64 `json:"rewards"`      // mean of each step
	PolicyVersion int64     `json:"policy_version"`
	Events        int64     `json:"events"`
	Seconds       float64   `json:"seconds"`
	Dir           string    `json:"dir,omitempty"`
}

func newDemo(g *global) *cobra.Command {
	s := defaultSettings()
	o := demoOptions{steps: 12, seed: 1, groups: 8, groupSize: 6}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Train the built-in policy on real tasks in real sandboxes, with everything embedded",
		Long: `Demo starts the whole plane in one process: the log, the store, every service, the built-in policy behind an
OpenAI-compatible endpoint, and the reference trainer. It opens a run on the sample tasks, shows the reward rise,
and says where the log, the trajectories and the batches are. On a plane that runs elsewhere (--nats and --store) it opens
the run demo-SEED there, if that is not yet there, and follows it to its end.

Two control experiments belong to it: with --learning-rate 0 nothing is learnt, and with --shuffle-rewards rewards
say nothing about the rollouts, so in both the reward must not rise.

With --large it trains on two repositories of some 190 files each instead, and the policy may ask the code (the tool codebase_search):
neither a listing nor grep leads to the fault. Compare with --large --search=false.`,
		Example: `  rondo demo
  rondo demo --steps 12 --seed 7 --json
  rondo demo --tasks ./my-tasks
  rondo demo --learning-rate 0
  rondo demo --large
  rondo demo --nats nats://127.0.0.1:4222 --store 's3://rondo?endpoint=http://127.0.0.1:7070'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.steps < 1 {
				return fmt.Errorf("--steps %d: must be at least 1", o.steps)
			}
			if !cmd.Flags().Changed("search") {
				o.search = o.large
			}
			run := demo
			if g.nats != "" {
				run = demoElsewhere
			}
			result, err := run(cmd.Context(), g, o, s)
			if err != nil {
				return err
			}
			if g.json {
				return printJSON(cmd.OutOrStdout(), result)
			}
			printDemo(cmd.OutOrStdout(), result)
			return nil
		},
	}
	s.addFlags(cmd)
	f := cmd.Flags()
	f.Int64Var(&o.steps, "steps", o.steps, "batches to train on")
	f.Int64Var(&o.seed, "seed", o.seed, "seed of task order and sampling")
	f.StringVar(&o.tasks, "tasks", "", "task pack: a folder of Harbor task folders (default: the sample pack)")
	f.BoolVar(&o.large, "large", false, "train on the pack of two large repositories instead of the sample pack")
	cmd.MarkFlagsMutuallyExclusive("tasks", "large")
	f.BoolVar(&o.search, "search", o.search, "let the policy search the code by meaning (default: with --large)")
	f.IntVar(&o.groups, "groups-per-batch", o.groups, "groups in a batch")
	f.IntVar(&o.groupSize, "group-size", o.groupSize, "rollouts in a group")
	f.BoolVar(&o.shuffle, "shuffle-rewards", false, "permute rewards within each group: a control that must not learn")
	f.StringVar(&o.durability, "durability", "always", "when appends are synced to disk: always, or an interval such as 100ms")
	return cmd
}

// demoTurns bounds a rollout of the demo: the built-in policy needs few turns, and makes several tries in one.
const demoTurns = 8

// demo runs the plane, one run on it, and everything down again.
func demo(ctx context.Context, g *global, o demoOptions, s settings) (demoResult, error) {
	if err := s.trainer.Validate(); err != nil {
		return demoResult{}, err
	}
	every, err := parseDurability(o.durability)
	if err != nil {
		return demoResult{}, err
	}
	show := newProgress(g)
	list, err := o.pack()
	if err != nil {
		return demoResult{}, err
	}
	if err := checkSandbox(ctx, needSandbox, s); err != nil {
		return demoResult{}, err
	}
	if err := warmToolchains(ctx, show, list, s); err != nil {
		return demoResult{}, err
	}
	p, err := hold(ctx, g.dir, holdOptions{storeURL: g.store, listen: true, durability: every})
	if errors.Is(err, errHeld) {
		err = fmt.Errorf("%w: does another `rondo demo` or `rondo up` run there? Choose another --dir", err)
	}
	if err != nil {
		return demoResult{}, err
	}
	defer p.close()
	if s.policyListen, s.builtin, err = freePolicyAddress(); err != nil {
		return demoResult{}, err
	}
	partsCtx, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, 1)
	go func() {
		failed <- runParts(partsCtx, everyPart(s), p.log, p.dir, logger(slog.LevelWarn), prometheus.NewRegistry(), s)
	}()
	o.insecure = s.allowInsecure
	w, runErr := demoRun(partsCtx, p, o, show, failed)
	stop()
	partsErr := <-failed // the services end before the log does
	if runErr != nil {
		return demoResult{}, runErr
	}
	if partsErr != nil {
		return demoResult{}, partsErr
	}
	return newDemoResult(w, p.dir), nil
}

// warmToolchains prepares what tasks need before the clock starts.
func warmToolchains(ctx context.Context, show *progress, list []*tasks.Task, s settings) error {
	var names []string
	for _, t := range list {
		names = append(names, t.Toolchains...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 {
		return nil
	}
	show.show("preparing toolchains %v (once, about a minute)", names)
	_, _, err := sandbox.Toolchains(ctx, names, s.toolchainCache)
	return err
}

// demoRun opens a run and follows it to its end.
func demoRun(ctx context.Context, p *plane, o demoOptions, show *progress, failed chan error) (*watcher, error) {
	name, err := freeRunName(ctx, p, o.seed)
	if err != nil {
		return nil, err
	}
	cfg, err := openDemo(ctx, p, name, o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-failed:
			failed <- err
			cancel(err)
		case <-ctx.Done():
		}
	}()
	w := newWatcher(name, cfg, show)
	err = w.follow(ctx, p.log)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return w, err
}

// pack loads the tasks to train on.
func (o demoOptions) pack() ([]*tasks.Task, error) {
	if o.large {
		return tasks.LoadPack(tasks.Large())
	}
	return loadTasks(o.tasks)
}

// openDemo opens the demo's run.
func openDemo(ctx context.Context, p *plane, name string, o demoOptions) (events.RunConfig, error) {
	f := runFile{RunConfig: events.DefaultRunConfig()}
	list, err := o.pack()
	if err != nil {
		return f.RunConfig, err
	}
	if f.Tasks, err = packTasks(ctx, p.store, list); err != nil {
		return f.RunConfig, err
	}
	f.Policy, f.Endpoint, f.Seed, f.Steps, f.GroupSize = "repair-"+name, events.BuiltinEndpoint, o.seed, o.steps, o.groupSize
	f.Feeds[0].GroupsPerBatch = o.groups
	f.Limits.Turns = demoTurns
	if o.insecure {
		f.MinIsolation = sandbox.IsolationNone
	}
	f.Advantage.ShuffleRewards = o.shuffle
	if o.search {
		f.Features = append(f.Features, events.FeatureCodebaseSearch)
	}
	_, err = openPacked(ctx, p, name, &f)
	return f.RunConfig, err
}

// freeRunName finds a name for another demo of a seed.
func freeRunName(ctx context.Context, p *plane, seed int64) (string, error) {
	taken, err := p.log.Runs(ctx)
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("demo-%d", seed)
	for n := 2; slices.Contains(taken, name); n++ {
		name = fmt.Sprintf("demo-%d-%d", seed, n)
	}
	return name, nil
}

func last(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return values[len(values)-1]
}

func newDemoResult(w *watcher, dir string) demoResult {
	l := w.ledger
	feed := l.Config.Feeds[0].Name
	b := l.Balance(feed)
	curve := l.RewardCurve(feed)
	r := demoResult{
		Run: l.Run, Steps: len(curve), Groups: l.Groups, Rollouts: b.Started, Trained: b.Trained, Stale: b.Stale, Filtered: b.Filtered,
		Failed: b.Failed, InFlight: b.InFlight, Rewards: curve, PolicyVersion: l.PolicyVersion, Events: l.Events, Seconds: w.time.Sub(w.began).Seconds(), Dir: dir,
	}
	r.RewardFirst, r.RewardLast = ledger.Quarters(curve)
	return r
}

func printDemo(w io.Writer, r demoResult) {
	fmt.Fprintln(w)
	plot(w, "mean reward by step", r.Rewards)
	fmt.Fprintf(w, `
The reward went from %.2f (first quarter of the steps) to %.2f (last quarter) in %.0f s.
%d rollouts: %d trained, %d stale, %d filtered, %d failed, %d in flight; policy version %d; %d events.

`, r.RewardFirst, r.RewardLast, r.Seconds, r.Rollouts, r.Trained, r.Stale, r.Filtered, r.Failed, r.InFlight, r.PolicyVersion, r.Events)
	where := ""
	if r.Dir != "" { // not on a plane that runs elsewhere, which whoever runs the commands names as it was named here
		fmt.Fprintf(w, "  log, objects, state   %s\n", r.Dir)
		where = " --dir " + r.Dir
	}
	fmt.Fprintf(w, `  trajectories          rondo trajectories list %[1]s%[2]s
  the books             rondo audit %[1]s%[2]s
  every decision again  rondo replay %[1]s --verify%[2]s
`, r.Run, where)
}
