// Package demo is the command that trains the built-in policy before your eyes.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/opening"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/cli/service"
	"github.com/rondo-rl/rondo/demo/packs"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/tasks"
)

// demoOptions are the demo's own flags.
type demoOptions struct {
	steps      int64
	seed       int64
	tasks      string
	pack       string
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
	Repair        string    `json:"repair,omitempty"` // the first rollout that mended its task
}

// New makes the command `rondo demo`.
func New(g *app.Global) *cobra.Command {
	s := service.DefaultSettings()
	o := demoOptions{steps: 6, seed: 1, groups: 8, groupSize: 8, pack: opening.DefaultPack}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Train the built-in policy on real tasks in real sandboxes, with everything embedded",
		Long: `Demo starts a whole plane in one process: the log, the store, every service, the built-in policy behind an
OpenAI-compatible endpoint, the reference trainer, and the dashboard, whose link it prints first. It opens a run on eight
small tasks and shows the first repair and the rising reward. At the end it names the commands to try next.

With --nats and --store it uses a plane that runs elsewhere. It opens the run demo-SEED there, unless that run exists, and
follows it to its end.

Two options are control experiments, in which the reward must not rise: --learning-rate 0 learns nothing, and
--shuffle-rewards permutes the rewards within each group.

--pack sample trains on eight programs of several files, two of them in Go, and takes several times as long.
--large (or --pack large) trains on two repositories of about 190 files each. The policy can search the code there with the
tool codebase_search, because neither a listing nor grep finds the fault. Compare it with --large --search=false.`,
		Example: `  rondo demo
  rondo demo --steps 12 --seed 7 --json
  rondo demo --pack sample
  rondo demo --tasks ./my-tasks
  rondo demo --learning-rate 0
  rondo demo --large
  rondo demo --nats nats://127.0.0.1:4222 --store 's3://rondo?endpoint=http://127.0.0.1:7070'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.steps < 1 {
				return fmt.Errorf("--steps %d: must be at least 1", o.steps)
			}
			if o.large {
				o.pack = "large"
			}
			if !cmd.Flags().Changed("search") {
				o.search = o.pack == "large"
			}
			run := demo
			if g.NATS != "" {
				run = demoElsewhere
			}
			result, err := run(cmd.Context(), g, o, s)
			if err != nil {
				return err
			}
			if g.JSON {
				return app.PrintJSON(cmd.OutOrStdout(), result)
			}
			printDemo(cmd.OutOrStdout(), result)
			return nil
		},
	}
	s.AddFlags(cmd)
	f := cmd.Flags()
	s.Dashboard.AddFlags(f, "127.0.0.1:0")
	f.Int64Var(&o.steps, "steps", o.steps, "batches to train on")
	f.Int64Var(&o.seed, "seed", o.seed, "seed of task order and sampling")
	f.StringVar(&o.tasks, "tasks", "",
		"train on a pack of your own: a folder of Harbor task folders, also ones whose tests run in process")
	f.StringVar(&o.pack, "pack", o.pack, "train on a pack that comes with Rondo: small, sample or large")
	f.BoolVar(&o.large, "large", false, "the same as --pack large: two large repositories")
	cmd.MarkFlagsMutuallyExclusive("tasks", "large", "pack")
	f.BoolVar(&o.search, "search", o.search, "let the policy search the code by meaning (default: with --large)")
	f.IntVar(&o.groups, "groups-per-batch", o.groups, "groups in a batch")
	f.IntVar(&o.groupSize, "group-size", o.groupSize, "rollouts in a group")
	f.BoolVar(&o.shuffle, "shuffle-rewards", false, "permute rewards within each group: a control that must not learn")
	f.StringVar(&o.durability, "durability", "always",
		"when appends are synced to disk: always, or an interval such as 100ms, which is what a power cut may then take "+
			"of the facts; no run that was answered as open is lost")
	app.ShowFlags(cmd, "allow-insecure", "dashboard-listen", "group-size", "groups-per-batch", "large", "learning-rate",
		"pack", "search", "seed", "shuffle-rewards", "steps", "tasks")
	return cmd
}

// demoTurns bounds a rollout of the demo: the built-in policy needs few turns, and
// makes several tries in one.
const demoTurns = 12

// demo runs the plane, one run on it, and everything down again.
func demo(ctx context.Context, g *app.Global, o demoOptions, s service.Settings) (demoResult, error) {
	if err := s.Trainer.Validate(); err != nil {
		return demoResult{}, err
	}
	every, err := service.ParseDurability(o.durability)
	if err != nil {
		return demoResult{}, err
	}
	show := app.NewProgress(g)
	list, err := o.load()
	if err != nil {
		return demoResult{}, err
	}
	if err := service.CheckSandbox(ctx, service.NeedSandbox, s); err != nil {
		return demoResult{}, err
	}
	if err := service.WarmToolchains(ctx, show, list, s); err != nil {
		return demoResult{}, err
	}
	p, err := plane.Hold(ctx, g.Dir, plane.HoldOptions{StoreURL: g.Store, Listen: true, Durability: every})
	if errors.Is(err, plane.ErrInUse) {
		err = fmt.Errorf("%w: does another `rondo demo` or `rondo up` run there? Choose another --dir", err)
	}
	if err != nil {
		return demoResult{}, err
	}
	defer p.Close()
	if err := s.PlacePolicy(service.AnyPort); err != nil {
		return demoResult{}, err
	}
	pages, err := s.Dashboard.Listen(p.Dir)
	if err != nil {
		return demoResult{}, err
	}
	defer s.Dashboard.Close()
	if pages != "" {
		show.Line("dashboard: %s", s.Dashboard.Welcome(show.Terminal))
	}
	partsCtx, stop := context.WithCancel(ctx)
	defer stop()
	if s.Health, err = p.Watch(partsCtx, app.Logger(slog.LevelWarn), nil); err != nil {
		return demoResult{}, err
	}
	failed := make(chan error, 1)
	go func() {
		failed <- service.RunParts(partsCtx, service.EveryPart(s), p.Log, p.Dir, app.Logger(slog.LevelWarn),
			prometheus.NewRegistry(), s)
	}()
	o.insecure = s.AllowInsecure
	w, runErr := demoRun(partsCtx, p, o, show, failed)
	stop()
	partsErr := <-failed // the services end before the log does
	if runErr != nil {
		return demoResult{}, runErr
	}
	if partsErr != nil {
		return demoResult{}, partsErr
	}
	return newDemoResult(w, p.Dir), nil
}

// demoRun opens a run and follows it to its end.
func demoRun(ctx context.Context, p *plane.Plane, o demoOptions, show *app.Progress,
	failed chan error) (*watcher, error) {
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
	err = w.follow(ctx, p.Log)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return w, err
}

// load reads the tasks to train on.
func (o demoOptions) load() ([]*tasks.Task, error) {
	switch {
	case o.tasks != "":
		return tasks.LoadDir(o.tasks)
	case o.pack == opening.DefaultPack:
		return tasks.LoadPack(packs.Small())
	case o.pack == "sample":
		return tasks.LoadPack(packs.Sample())
	case o.pack == "large":
		return tasks.LoadPack(packs.Large())
	}
	return nil, fmt.Errorf("--pack %q: want small, sample or large; --tasks takes a folder", o.pack)
}

// openDemo opens the demo's run.
func openDemo(ctx context.Context, p *plane.Plane, name string, o demoOptions) (runfile.RunConfig, error) {
	f := opening.RunFile{RunConfig: runfile.DefaultRunConfig()}
	list, err := o.load()
	if err != nil {
		return f.RunConfig, err
	}
	if f.Tasks, err = opening.PackTasks(ctx, p.Store, list, f.Limits); err != nil {
		return f.RunConfig, err
	}
	f.Policy, f.Endpoint, f.Seed, f.Steps, f.GroupSize = "repair-"+name, runfile.BuiltinEndpoint,
		o.seed, o.steps, o.groupSize
	f.Feeds[0].GroupsPerBatch = o.groups
	f.Limits.Turns = demoTurns
	f.Staleness.Max = 1 // with more, the policy that has not learnt yet would sample most of so few steps
	if o.tasks == "" && o.pack == opening.DefaultPack {
		// a batch has one group of each of the eight tasks, so that one step's
		// reward compares with another's
		f.Staleness.Max = 0
	}
	if o.tasks != "" {
		// the built-in policy repairs programs and does not write any that could decide its reward
		f.MinVerifier = runfile.VerifierUnguarded
	}
	if o.insecure {
		f.MinIsolation = sandbox.IsolationNone
	}
	f.Advantage.ShuffleRewards = o.shuffle
	if o.search {
		f.Features = append(f.Features, runfile.FeatureCodebaseSearch)
	}
	_, err = opening.OpenPacked(ctx, p, name, &f)
	return f.RunConfig, err
}

// freeRunName finds a name for another demo of a seed.
func freeRunName(ctx context.Context, p *plane.Plane, seed int64) (string, error) {
	taken, err := p.Log.Runs(ctx)
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
	l := w.books
	feed := l.Config.Feeds[0].Name
	b := l.Balance(feed)
	curve := l.RewardCurve(feed)
	r := demoResult{
		Run: l.Name, Steps: len(curve), Groups: l.Groups, Rollouts: b.Started, Trained: b.Trained,
		Stale: b.Stale, Filtered: b.Filtered,
		Failed: b.Failed, InFlight: b.InFlight, Repair: w.repair.shown, Rewards: curve, PolicyVersion: l.PolicyVersion,
		Events: l.Events, Seconds: w.time.Sub(l.Opened).Seconds(), Dir: dir,
	}
	r.RewardFirst, r.RewardLast = books.Quarters(curve)
	return r
}

func printDemo(w io.Writer, r demoResult) {
	fmt.Fprintln(w)
	app.Plot(w, "mean reward by step", r.Rewards)
	fmt.Fprintf(w, `
The reward went from %.2f (first quarter of the steps) to %.2f (last quarter) in %.0f s.
%d rollouts: %d trained, %d stale, %d filtered, %d failed, %d in flight; policy version %d; %d events.

`, r.RewardFirst, r.RewardLast, r.Seconds, r.Rollouts, r.Trained, r.Stale, r.Filtered, r.Failed, r.InFlight, r.PolicyVersion, r.Events)
	where := ""
	if r.Dir != "" { // not on a plane that runs elsewhere, which whoever runs the commands names as it was named here
		fmt.Fprintf(w, "Log, objects and state are in %s. Worth typing next:\n\n", r.Dir)
		where = " --dir " + r.Dir
	} else {
		fmt.Fprint(w, "Worth typing next:\n\n")
	}
	rollout := cmp.Or(r.Repair, events.RolloutID(events.GroupID(1), 0))
	fmt.Fprintf(w, `  %[1]s run show %[2]s%[3]s
  %[1]s trajectories show %[2]s %[4]s%[3]s
  %[1]s replay %[2]s --verify%[3]s
`, service.Self(), r.Run, where, rollout)
}
