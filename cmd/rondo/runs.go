package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/ledger"
)

func newRun(g *global) *cobra.Command {
	cmd := &cobra.Command{Use: "run", Short: "Open, pause, close and look at runs"}
	cmd.AddCommand(newRunOpen(g), newRunPause(g), newRunResume(g), newRunClose(g), newRunCancel(g), newRunList(g), newRunShow(g), newRunDelete(g))
	return cmd
}

func newRunOpen(g *global) *cobra.Command {
	var file, tasksDir string
	s := defaultSettings()
	cmd := &cobra.Command{
		Use:   "open RUN [--file run.yaml] [--tasks DIR]",
		Short: "Open a run: its tasks go to the store, its configuration to the log",
		Long: `Open packs the run's tasks into the store and states its configuration on the log.

A run file says how rewards become advantages by the name of an estimator and its parameters, or by the name of a
system whose estimator it wants; parameters beside a preset win. ` + "`rondo advantage --list`" + ` shows both.

  policy: small
  endpoint: builtin
  advantage:
    preset: verl
    params: {eps: 1e-4}

Where the run file names servers of tools (tools.servers) without what they offer, they are asked here: one that is a command is started in
a sandbox of the run's first task, on this machine. What they answer is part of the run.`,
		Example: `  rondo run open first --file run.yaml
  rondo run open first --tasks ./my-tasks`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f := runFile{RunConfig: events.DefaultRunConfig()}
			f.Endpoint, f.Policy = events.BuiltinEndpoint, args[0]
			if file != "" {
				var err error
				if f, err = readRunFile(file); err != nil {
					return err
				}
			}
			if tasksDir != "" {
				f.TasksDir = tasksDir
			}
			p, err := connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.close()
			answer, err := openRun(cmd.Context(), p, args[0], &f, s)
			if err != nil {
				return err
			}
			if g.json {
				return printJSON(cmd.OutOrStdout(), answer)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "run %s is open (%d tasks)\n", args[0], len(f.Tasks))
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "run file (YAML)")
	cmd.Flags().StringVar(&tasksDir, "tasks", "", "task pack: a folder of Harbor task folders (default: the sample pack)")
	s.addSandboxFlags(cmd)
	s.addKeysFlag(cmd.Flags())
	return cmd
}

// openRun packs the tasks, asks servers for their tools and states the opening at the door.
func openRun(ctx context.Context, p *plane, run string, f *runFile, s settings) (events.DoorAnswer, error) {
	if !events.ValidRun(run) {
		return events.DoorAnswer{}, fmt.Errorf("run name %q: use letters, digits, - and _, at most 64, and none of _, IN and DEAD", run)
	}
	if !f.External || f.TasksDir != "" { // outsiders bring their own
		list, err := loadTasks(f.TasksDir)
		if err != nil {
			return events.DoorAnswer{}, err
		}
		if f.Tasks, err = packTasks(ctx, p.store, list); err != nil {
			return events.DoorAnswer{}, err
		}
	}
	if err := listServers(ctx, p, run, f, s); err != nil {
		return events.DoorAnswer{}, fmt.Errorf("run %s: %w", run, err)
	}
	return openPacked(ctx, p, run, f)
}

// openPacked states the opening of a run whose tasks are in the store.
func openPacked(ctx context.Context, p *plane, run string, f *runFile) (events.DoorAnswer, error) {
	if err := f.check(); err != nil {
		return events.DoorAnswer{}, fmt.Errorf("run %s: %w", run, err)
	}
	return submit(ctx, p, eventlog.Submission{
		Run: run, Type: events.RunOpenedType, Entity: run, Data: events.RunOpened{Config: f.RunConfig}, ID: "opened-" + run,
	})
}

// answerTimeout bounds the wait for the intake: it may just be starting.
const answerTimeout = 15 * time.Second

func submit(ctx context.Context, p *plane, s eventlog.Submission) (events.DoorAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	s.Source = "rondo"
	answer, err := p.log.Submit(ctx, s)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: does `rondo up` or `rondo service intake` run?", err)
	}
	return answer, err
}

func newRunClose(g *global) *cobra.Command {
	return newRunStatement(g, "close", "End a run: nothing new is opened, what is in flight is cancelled", events.RunClosedType, events.RunClosed{Reason: "closed by the operator"}, "closed")
}

func newRunCancel(g *global) *cobra.Command {
	return newRunStatement(g, "cancel", "End a run and say that it was given up", events.RunClosedType, events.RunClosed{Reason: "cancelled by the operator"}, "closed")
}

// runSummary is one line of `run list` and the whole of `run show`.
type runSummary struct {
	Run           string           `json:"run"`
	State         string           `json:"state"`            // open, paused or closed
	Reason        string           `json:"reason,omitempty"` // of a pause or closing
	Policy        string           `json:"policy"`
	PolicyVersion int64            `json:"policy_version"`
	Tasks         int              `json:"tasks"`
	Groups        int64            `json:"groups"`
	Events        int64            `json:"events"`
	Feeds         []ledger.Balance `json:"feeds"`
	Rewards       []float64        `json:"rewards"` // mean of each batch of the first feed
	Features      []string         `json:"features,omitempty"`
	Traffic       *events.Traffic  `json:"traffic,omitempty"`
	// Unreadable is why the run's events cannot be read to their end; the rest is missing then.
	Unreadable string `json:"unreadable,omitempty"`
}

// summarise reads a run's stream. One that cannot be read is no reason to show no other.
func summarise(ctx context.Context, log *eventlog.Log, run string) (runSummary, error) {
	state, reason, err := runState(ctx, log, run)
	if err != nil {
		return runSummary{}, err
	}
	l, err := ledger.Read(ctx, log, run)
	if ctx.Err() != nil {
		return runSummary{}, ctx.Err()
	}
	if err != nil {
		return runSummary{Run: run, State: state, Reason: reason, Unreadable: err.Error()}, nil
	}
	s := runSummary{Run: l.Run, State: state, Reason: reason, Policy: l.Config.Policy, PolicyVersion: l.PolicyVersion, Tasks: len(l.Config.Tasks), Groups: l.Groups, Events: l.Events, Features: l.Config.Features}
	if l.Config.Has(events.FeatureUserTraffic) {
		s.Traffic = &l.Config.Traffic
	}
	for _, feed := range l.Feeds() {
		s.Feeds = append(s.Feeds, l.Balance(feed))
	}
	s.Rewards = l.RewardCurve(l.FirstFeed())
	return s, nil
}

func newRunList(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the runs", Example: "  rondo run list --json", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.close()
			names, err := allRuns(cmd.Context(), p.log)
			if err != nil {
				return err
			}
			list := []runSummary{}
			for _, name := range names {
				s, err := summarise(cmd.Context(), p.log, name)
				if err != nil {
					return err
				}
				list = append(list, s)
			}
			if g.json {
				return printJSON(cmd.OutOrStdout(), list)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "RUN\tSTATE\tPOLICY\tVERSION\tGROUPS\tSTEPS\tEVENTS")
			for _, s := range list {
				fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%d\n", s.Run, s.State, s.Policy, s.PolicyVersion, s.Groups, len(s.Rewards), s.Events)
			}
			return w.Flush()
		},
	}
}

func newRunShow(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "show RUN", Short: "Show a run: state, books, rewards", Example: "  rondo run show demo-1 --json", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := connectRun(cmd.Context(), g, args[0])
			if err != nil {
				return err
			}
			defer p.close()
			s, err := summarise(cmd.Context(), p.log, args[0])
			if err != nil {
				return err
			}
			if g.json {
				return printJSON(cmd.OutOrStdout(), s)
			}
			w := cmd.OutOrStdout()
			fmt.Fprintf(w, "run %s is %s: policy %s at version %d, %d tasks, %d groups, %d events\n", s.Run, s.State, s.Policy, s.PolicyVersion, s.Tasks, s.Groups, s.Events)
			if s.Reason != "" {
				fmt.Fprintf(w, "%s: %s\n", s.State, clean(s.Reason))
			}
			if s.Unreadable != "" {
				fmt.Fprintf(w, "its events cannot be read: %s\n", clean(s.Unreadable))
			}
			if len(s.Features) > 0 {
				fmt.Fprintf(w, "features: %s\n", strings.Join(s.Features, ", "))
			}
			for _, b := range s.Feeds {
				printBalance(w, b)
			}
			if len(s.Rewards) > 0 {
				plot(w, "mean reward by step", s.Rewards)
			}
			return nil
		},
	}
}
