// Package run has the commands that open, show, change and end runs.
package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/opening"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/cli/service"
	"github.com/rondo-rl/rondo/cli/tables"
	"github.com/rondo-rl/rondo/evaluation/behaviour"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/health"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/tasks"
)

// New makes the command `rondo run`.
func New(g *app.Global) *cobra.Command {
	cmd := &cobra.Command{Use: "run", Short: "Open, pause, close and look at runs"}
	cmd.AddCommand(newRunOpen(g), newRunContinue(g), newRunPause(g),
		newRunStatement(g, "resume", "Go on with a run that was paused, by an operator or by Rondo itself",
			events.RunResumedType,
			events.RunResumed{Reason: "resumed by the operator"}, "open"),
		newRunStatement(g, "close", "End a run: open no new groups and cancel the rollouts in flight",
			events.RunClosedType,
			events.RunClosed{Reason: "closed by the operator"}, "closed"),
		newRunStatement(g, "cancel", "End a run and say that it was given up", events.RunClosedType,
			events.RunClosed{Reason: "cancelled by the operator"}, "closed"))
	cmd.AddCommand(newRunList(g), newRunShow(g), newRunSteps(g), newRunTasks(g), newRunDelete(g), newRunRecover(g))
	return cmd
}

func newRunOpen(g *app.Global) *cobra.Command {
	var file, tasksDir string
	var replicas int
	var force bool
	s := service.DefaultSettings()
	cmd := &cobra.Command{
		Use:   "open RUN [--file run.yaml] [--tasks DIR]",
		Short: "Open a run: store its tasks, record its configuration",
		Long: `Open packs the run's tasks into the store and records its configuration on the log.

A run file says how rewards become advantages by the name of an estimator and its parameters, or by the name of a
system whose estimator it wants; params override those of a preset. ` + "`rondo advantage --list`" + ` shows both.

  policy: small
  endpoint: builtin
  advantage:
    preset: verl
    params: {eps: 1e-4}

Where the run file names servers of tools (tools.servers) without what they offer, they are asked here: one that is a command is started in
a sandbox of the run's first task, on this machine. What they answer is part of the run.

Before that, it looks at the run's inference servers. It opens no run whose servers do not answer, refuse the key, or do
not have the model, unless --force says so, and warns of a context that is smaller than limits.tokens. With --nats it only
warns of servers that do not answer: the generators may reach what this machine does not.

Tasks without a workspace are lines of a file that ends in .jsonl: {"name": "…", "instruction": "…"}, and whatever the run's environment or its
reward function must know. The run file names one of them: environment: {name: …}, or scorer: {function: …}.`,
		Example: `  rondo run open first --file run.yaml
  rondo run open first --tasks ./my-tasks
  rondo run open maths --file maths.yaml --tasks sums.jsonl
  rondo run open long --file run.yaml --replicas 3 --nats nats://n1:4222 --store /srv/rondo`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !events.ValidRun(args[0]) { // before servers are asked
				return fmt.Errorf("run name %q: use letters, digits, - and _, at most 64, and none of _, IN and DEAD",
					args[0])
			}
			f := opening.RunFile{RunConfig: runfile.DefaultRunConfig()}
			f.Endpoint, f.Policy = runfile.BuiltinEndpoint, args[0]
			if file != "" {
				var err error
				if f, err = opening.ReadRunFile(file); err != nil {
					return err
				}
			}
			if tasksDir != "" {
				f.TasksDir = tasksDir
			}
			if cmd.Flags().Changed("replicas") {
				f.Log.Replicas = replicas
			}
			keys, err := service.ReadKeys(s.EndpointKeys)
			if err != nil {
				return err
			}
			sees := f.Look(cmd.Context(), keys)
			stops, warns := sees.Others, append(sees.Silent, sees.Narrow...)
			if g.NATS == "" { // the services run here, and reach what this command reaches
				stops, warns = append(stops, sees.Silent...), sees.Narrow
			}
			if len(stops) > 0 && !force {
				return &app.ExitError{Code: app.ExitFindings,
					Err: fmt.Errorf("run %s is not opened; --force opens it nevertheless:\n  %s", args[0],
						strings.Join(stops, "\n  "))}
			}
			for _, what := range append(stops, warns...) {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+what)
			}
			p, err := plane.Connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.Close()
			answer, err := openRun(cmd.Context(), p, args[0], &f, s)
			if err != nil {
				return err
			}
			if g.JSON {
				return app.PrintJSON(cmd.OutOrStdout(), answer)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "run %s is open (%d tasks)\n", args[0], len(f.Tasks))
			if answer.Unproven > 0 {
				fmt.Fprintf(cmd.OutOrStdout(),
					"%d of them are unproven on this machine: `rondo tasks lint %s` shows whether they measure what they should\n",
					answer.Unproven, f.TasksDir)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "run file (YAML)")
	cmd.Flags().BoolVar(&force, "force", false,
		"open the run even if its inference servers do not answer or have other models")
	cmd.Flags().StringVar(&tasksDir, "tasks", "",
		"task pack: a folder of Harbor task folders, or a .jsonl file of tasks without a workspace (default: the pack small, which the demo trains on)")
	cmd.Flags().IntVar(&replicas, "replicas", 0,
		"servers of the NATS cluster that hold the run's log: 1, 3 or 5, or 0 for as many as hold the catalogue (log.replicas in the run file)")
	s.AddSandboxFlags(cmd)
	s.AddKeysFlag(cmd.Flags())
	return cmd
}

// opened is the answer to an opening.
type opened struct {
	events.IntakeAnswer
	Unproven int `json:"unproven,omitempty"` // of the tasks of a pack of the user's own
}

// openRun packs the tasks, asks servers for their tools and submits the opening.
func openRun(ctx context.Context, p *plane.Plane, run string, f *opening.RunFile,
	s service.Settings) (answer opened, err error) {
	if !f.External || f.TasksDir != "" { // outsiders bring their own
		pack, err := f.TakeTasks(ctx, p.Store)
		if err != nil {
			return answer, err
		}
		if f.TasksDir != "" {
			answer.Unproven = tasks.Unproven(pack, s.ToolchainCache)
		}
	}
	if err := opening.ListServers(ctx, p, run, f, s); err != nil {
		return answer, fmt.Errorf("run %s: %w", run, err)
	}
	answer.IntakeAnswer, err = opening.OpenPacked(ctx, p, run, f)
	return answer, err
}

// lostKinds are the states of runs that are outages.
var lostKinds = map[string]health.Kind{eventlog.StateLost: health.StreamLost, eventlog.StateBehind: health.StreamBehind}

// RunSummary is one line of `run list` and the whole of `run show`.
type RunSummary struct {
	Run           string          `json:"run"`
	State         string          `json:"state"`            // open, paused, closed, archived, lost, restoring or behind
	Reason        string          `json:"reason,omitempty"` // of a pause, a closing or an outage
	Policy        string          `json:"policy"`
	PolicyVersion int64           `json:"policy_version"`
	Tasks         int             `json:"tasks"`
	Groups        int64           `json:"groups"`
	Events        int64           `json:"events"`
	Feeds         []books.Balance `json:"feeds"`
	// Continues is the run that this one continues.
	Continues string           `json:"continues,omitempty"`
	Rewards   []float64        `json:"rewards"` // mean of each batch of the first feed
	Features  []string         `json:"features,omitempty"`
	Traffic   *runfile.Traffic `json:"traffic,omitempty"`
	Forfeits  *forfeits        `json:"forfeits,omitempty"`
	// Behaviour has a row for each policy version at dispatch; run list has none.
	Behaviour []behaviour.Row `json:"behaviour,omitempty"`
	// Endings counts the finished rollouts by why they ended.
	Endings   map[string]int `json:"endings,omitempty"`
	Summaries *summaries     `json:"summaries,omitempty"`
	Agents    *restarts      `json:"agents,omitempty"`
	// LogprobGaps are what the first feed's trainer stated, by step.
	LogprobGaps []books.StepGap `json:"logprob_gaps,omitempty"`
	// Capacity is what was stated last of how much the servers of a run with in_flight: auto
	// can do; run list has none.
	Capacity *events.CapacityMeasured `json:"capacity,omitempty"`
	// Log is how full the run's stream is; none where the stream is deleted.
	Log *logSize `json:"log,omitempty"`
	// Outages are what the plane lacks now, where that can be learnt: until they end
	// the run may stand still.
	Outages []health.Outage `json:"outages,omitempty"`
	// Waits is why the run's policy has no newer weights, when the last ones that were
	// submitted were rejected.
	Waits string `json:"waits,omitempty"`
	// Unserved are rollouts for which users' workers are missing; run list has none.
	Unserved []string `json:"unserved,omitempty"`
	// Unreadable is why the run's events cannot be read to their end; the rest is missing then.
	Unreadable string `json:"unreadable,omitempty"`
	// outage: that is the store's, and ends.
	outage bool
}

// summarise reads a run's stream, along with other folds. One that cannot be read is no
// reason to show no other.
func summarise(ctx context.Context, log *eventlog.Log, l *books.Run,
	folds ...func(events.Event) error) (RunSummary, error) {
	state, reason, err := log.RunState(ctx, l.Name)
	if err != nil {
		return RunSummary{}, err
	}
	err = l.Read(ctx, log.Reader, folds...)
	if ctx.Err() != nil {
		return RunSummary{}, ctx.Err()
	}
	if err != nil {
		return RunSummary{Run: l.Name, State: state, Reason: reason, Unreadable: err.Error(),
			outage: errors.Is(err, storage.ErrUnavailable)}, nil
	}
	s := RunSummary{Run: l.Name, State: state, Reason: reason, Policy: l.Config.Policy, PolicyVersion: l.PolicyVersion,
		Tasks: len(l.Config.Tasks), Groups: l.Groups,
		Events: l.Events, Features: l.Config.Features}
	if l.Continues != nil {
		s.Continues = l.Continues.Run
	}
	if l.Config.Has(runfile.FeatureUserTraffic) {
		s.Traffic = &l.Config.Traffic
	}
	if s.State != "closed" && s.State != eventlog.StateArchived && s.State != eventlog.StateLost {
		if s.Waits, err = tables.RejectedWeights(ctx, log, s.Policy, s.PolicyVersion); err != nil {
			return RunSummary{}, err
		}
	}
	for _, feed := range l.Feeds() {
		s.Feeds = append(s.Feeds, l.Balance(feed))
	}
	s.Forfeits, s.Endings, s.Summaries = forfeitsOf(l), endingsOf(l), summariesOf(l)
	s.Agents = restartsOf(l.Totals)
	s.Rewards = l.RewardCurve(l.FirstFeed())
	s.LogprobGaps = l.Gaps(l.FirstFeed())
	return s, nil
}

func newRunList(g *app.Global) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the runs", Example: "  rondo run list --json", Args: cobra.NoArgs,
		RunE: plane.Reading(g, func(cmd *cobra.Command, _ []string, p *plane.Plane) error {
			names, err := p.Log.AllRuns(cmd.Context(), events.RunOpenedType) // also those whose streams are lost
			if err != nil {
				return err
			}
			list := []RunSummary{}
			for _, name := range names {
				s, err := summarise(cmd.Context(), p.Log, books.New(name))
				if err != nil {
					return err
				}
				list = append(list, s)
			}
			if g.JSON {
				return errors.Join(app.PrintJSON(cmd.OutOrStdout(), list), incomplete(list...))
			}
			w := app.NewColumns(cmd.OutOrStdout())
			fmt.Fprintln(w, "RUN\tSTATE\tPOLICY\tVERSION\tGROUPS\tSTEPS\tEVENTS")
			for _, s := range list {
				fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%d\n", s.Run, s.State, s.Policy, s.PolicyVersion, s.Groups,
					len(s.Rewards), s.Events)
			}
			return errors.Join(w.Flush(), incomplete(list...))
		}),
	}
}

// incomplete says that a store which is out keeps back what runs hold, and of which of them.
func incomplete(list ...RunSummary) error {
	var names []string
	why := ""
	for _, s := range list {
		if s.outage {
			names, why = append(names, s.Run), s.Unreadable
		}
	}
	if len(names) == 0 {
		return nil
	}
	return &app.ExitError{Code: app.ExitFindings, Err: fmt.Errorf(
		"the events of %s cannot be read to their end while the store is out, and what follows from them is not shown: %s",
		strings.Join(names, ", "), app.Clean(why),
	)}
}

func newRunShow(g *app.Global) *cobra.Command {
	var behaves bool
	cmd := &cobra.Command{
		Use: "show RUN", Short: "Show a run: state, books, rewards, behaviour", Args: cobra.ExactArgs(1),
		Long: `Show says how a run stands: its state, its books, why its rollouts ended, and the mean reward of each batch.

--behaviour adds how the agents behave, with a row for each version of the policy (at dispatch), or for several versions where there are more
than 20: turns, sampled tokens, reasoning, tool calls, why rollouts stopped, and what penalties for effort and length change rewards by. It counts
the rollouts that are scored. A dash means that the log does not say. --json always has every version.`,
		Example: `  rondo run show demo-1
  rondo run show demo-1 --behaviour
  rondo run show demo-1 --json`,
		RunE: plane.Reading(g, func(cmd *cobra.Command, args []string, p *plane.Plane) error {
			if err := p.MustRun(cmd.Context(), args[0]); err != nil {
				return err
			}
			var servers capacity
			l := books.New(args[0])
			acts, folds := behaviour.New(&l.Rollouts), []func(events.Event) error{servers.apply}
			if g.JSON || behaves {
				folds = append(folds, acts.Apply)
			}
			s, err := summarise(cmd.Context(), p.Log, l, folds...)
			if err != nil {
				return err
			}
			if s.Log, err = logSizeOf(cmd.Context(), p.Log, args[0]); err != nil {
				return err
			}
			if s.Outages, err = plane.OutagesOf(cmd.Context(), p); err != nil {
				s.Outages = []health.Outage{{Kind: "unknown", Since: time.Now(), Reason: err.Error()}}
			}
			if s.State == "open" {
				if s.Unserved, err = unserved(cmd.Context(), p.Log, args[0]); err != nil {
					return err
				}
			}
			if kind, ok := lostKinds[s.State]; ok {
				s.Outages = append(s.Outages, health.Outage{Kind: kind, Of: events.RunStream(s.Run),
					Since: time.Now(), Reason: s.Reason})
			}
			if s.Unreadable == "" {
				s.Behaviour, s.Capacity = acts.Rows(), servers.CapacityMeasured
			}
			if g.JSON {
				return errors.Join(app.PrintJSON(cmd.OutOrStdout(), s), incomplete(s))
			}
			w := cmd.OutOrStdout()
			for _, o := range s.Outages {
				fmt.Fprintf(w, "outage: %s\n", app.Clean(o.String()))
			}
			fmt.Fprintf(w, "run %s is %s: policy %s at version %d, %d tasks, %d groups, %d events\n", s.Run, s.State,
				s.Policy, s.PolicyVersion, s.Tasks, s.Groups, s.Events)
			if s.Continues != "" {
				fmt.Fprintf(w, "continues: %s\n", s.Continues)
			}
			if s.Reason != "" {
				fmt.Fprintf(w, "%s: %s\n", s.State, app.Clean(s.Reason))
			}
			if s.Waits != "" {
				fmt.Fprintf(w, "waits: %s\n", app.Clean(s.Waits))
			}
			for _, why := range s.Unserved {
				fmt.Fprintf(w, "waits: %s\n", why)
			}
			if s.Unreadable != "" {
				fmt.Fprintf(w, "its events cannot be read: %s\n", app.Clean(s.Unreadable))
			}
			if s.Log != nil {
				fmt.Fprintf(w, "log: %s\n", s.Log)
			}
			if len(s.Features) > 0 {
				fmt.Fprintf(w, "features: %s\n", strings.Join(s.Features, ", "))
			}
			if s.Capacity != nil {
				fmt.Fprintf(w, "servers: %s\n", app.Clean(capacityText(*s.Capacity)))
			}
			for _, b := range s.Feeds {
				tables.PrintBalance(w, b)
			}
			if len(s.Endings) > 0 {
				fmt.Fprintf(w, "ended: %s\n", app.Clean(byCount(s.Endings)))
			}
			if s.Agents != nil {
				fmt.Fprintf(w, "agents: %s\n", s.Agents)
			}
			if sums := s.Summaries; sums != nil {
				fmt.Fprintf(w, "summaries: %d in %d rollouts\n", sums.Total, sums.Rollouts)
			}
			if s.Forfeits != nil {
				fmt.Fprintf(w, "forfeits: %s\n", app.Clean(s.Forfeits.String()))
			}
			printGaps(w, s.LogprobGaps)
			if len(s.Rewards) > 0 {
				app.Plot(w, "mean reward by step", s.Rewards)
			}
			if behaves && s.Unreadable == "" {
				return printBehaviour(w, acts.RowsOf(shownVersions))
			}
			return incomplete(s)
		}),
	}
	cmd.Flags().BoolVar(&behaves, "behaviour", false, "show how the agents behave, by policy version")
	return cmd
}
