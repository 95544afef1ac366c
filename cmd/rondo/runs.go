package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/ledger"
)

func newRun(g *global) *cobra.Command {
	cmd := &cobra.Command{Use: "run", Short: "Open, close and look at runs"}
	cmd.AddCommand(newRunOpen(g), newRunClose(g), newRunCancel(g), newRunList(g), newRunShow(g))
	return cmd
}

// runFile is what a run file says beside the run's configuration.
type runFile struct {
	events.RunConfig `yaml:",inline"`
	// TasksDir is the task pack; the sample pack when it is empty.
	TasksDir string `yaml:"tasks"`
}

// readRunFile reads a run file strictly: a key that nothing reads is a mistake.
func readRunFile(path string) (runFile, error) {
	f := runFile{RunConfig: events.DefaultRunConfig()}
	text, err := os.ReadFile(path)
	if err != nil {
		return f, fmt.Errorf("read run file: %w", err)
	}
	if err := yaml.UnmarshalWithOptions(text, &f, yaml.Strict()); err != nil {
		return f, fmt.Errorf("read run file %s: %w", path, err)
	}
	return f, nil
}

func newRunOpen(g *global) *cobra.Command {
	var file, tasksDir string
	cmd := &cobra.Command{
		Use:   "open RUN [--file run.yaml] [--tasks DIR]",
		Short: "Open a run: its tasks go to the store, its configuration to the log",
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
			answer, err := openRun(cmd.Context(), p, args[0], &f)
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
	return cmd
}

// openRun packs the tasks and states the opening at the door.
func openRun(ctx context.Context, p *plane, run string, f *runFile) (events.DoorAnswer, error) {
	if !events.ValidRun(run) {
		return events.DoorAnswer{}, fmt.Errorf("run name %q: use letters, digits, - and _, at most 64, and none of _, IN and DEAD", run)
	}
	list, err := loadTasks(f.TasksDir)
	if err != nil {
		return events.DoorAnswer{}, err
	}
	if f.Tasks, err = packTasks(ctx, p.store, list); err != nil {
		return events.DoorAnswer{}, err
	}
	if err := f.Validate(); err != nil {
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
	return &cobra.Command{
		Use: "close RUN", Short: "End a run: nothing new is opened, what is in flight is cancelled",
		Example: "  rondo run close first", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return closeRun(cmd, g, args[0], "closed by the operator")
		},
	}
}

func newRunCancel(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "cancel RUN", Short: "End a run and say that it was given up",
		Example: "  rondo run cancel first", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return closeRun(cmd, g, args[0], "cancelled by the operator")
		},
	}
}

func closeRun(cmd *cobra.Command, g *global, run, reason string) error {
	p, err := connect(cmd.Context(), g)
	if err != nil {
		return err
	}
	defer p.close()
	answer, err := submit(cmd.Context(), p, eventlog.Submission{
		Run: run, Type: events.RunClosedType, Entity: run, Data: events.RunClosed{Reason: reason}, ID: "closed-" + run + "-" + nats.NewInbox()[7:],
	})
	if err != nil {
		return err
	}
	if g.json {
		return printJSON(cmd.OutOrStdout(), answer)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "run %s is closed\n", run)
	return nil
}

// runSummary is one line of `run list` and the whole of `run show`.
type runSummary struct {
	Run           string           `json:"run"`
	State         string           `json:"state"`
	Policy        string           `json:"policy"`
	PolicyVersion int64            `json:"policy_version"`
	Tasks         int              `json:"tasks"`
	Groups        int64            `json:"groups"`
	Events        int64            `json:"events"`
	Feeds         []ledger.Balance `json:"feeds"`
	Rewards       []float64        `json:"rewards"` // mean of each batch of the first feed
}

func summarise(l *ledger.Ledger) runSummary {
	s := runSummary{Run: l.Run, State: "open", Policy: l.Config.Policy, PolicyVersion: l.PolicyVersion, Tasks: len(l.Config.Tasks), Groups: l.Groups, Events: l.Events}
	if l.Closed {
		s.State = "closed"
	}
	for _, f := range l.Config.Feeds {
		s.Feeds = append(s.Feeds, l.Balance(f.Name))
	}
	if len(l.Config.Feeds) > 0 {
		s.Rewards = l.RewardCurve(l.Config.Feeds[0].Name)
	}
	return s
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
			names, err := p.log.Runs(cmd.Context())
			if err != nil {
				return err
			}
			slices.Sort(names)
			list := []runSummary{}
			for _, name := range names {
				l, err := ledger.Read(cmd.Context(), p.log, name)
				if err != nil {
					return err
				}
				list = append(list, summarise(l))
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
			p, err := connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.close()
			if err := p.mustRun(cmd.Context(), args[0]); err != nil {
				return err
			}
			l, err := ledger.Read(cmd.Context(), p.log, args[0])
			if err != nil {
				return err
			}
			s := summarise(l)
			if g.json {
				return printJSON(cmd.OutOrStdout(), s)
			}
			w := cmd.OutOrStdout()
			fmt.Fprintf(w, "run %s is %s: policy %s at version %d, %d tasks, %d groups, %d events\n", s.Run, s.State, s.Policy, s.PolicyVersion, s.Tasks, s.Groups, s.Events)
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
