package run

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/opening"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/cli/service"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/replay"
)

// continuing are the flags of `rondo run continue`.
type continuing struct {
	service.Settings // of servers of tools that a run file names
	as, file         string
	set              []string
}

// continued is what `rondo run continue` answers.
type continued struct {
	Run           string `json:"run"`
	Continues     string `json:"continues"`
	Until         uint64 `json:"until"`
	State         string `json:"state"` // of the run that is continued
	PolicyVersion int64  `json:"policy_version"`
	Tasks         int    `json:"tasks"`
	PassRates     int    `json:"pass_rates"`
	Baselines     int    `json:"baselines"`
	Misfits       int    `json:"misfits"`
}

func newRunContinue(g *app.Global) *cobra.Command {
	o := continuing{Settings: service.DefaultSettings()}
	cmd := &cobra.Command{
		Use: "continue OLD --as NEW", Short: "Open a run that goes on where another one ended",
		Args: cobra.ExactArgs(1),
		Long: `Continue opens a run with the tasks and the run file of another one, or with those of --file, and takes along what that run has learnt: the pass
rates of its curriculum, the baselines of its tasks, the tasks that do not fit into the server's context, its policy's version, and how many
tasks it has drawn. The new run's first event holds all of this, so the new run can be audited and replayed without the old one.

OLD must be closed, paused or archived. It is not changed. A run whose rollouts are still in flight is taken as it is now, and the event until
which it counts is recorded. Groups that no weights cover stay with OLD. The new run's steps begin at 1, and its circuit breaker begins anew.

What no longer holds is left out: pass rates under another pass_at, baselines under another estimator or shaping, tasks whose digest is another
one, and, with another endpoint, which tasks do not fit.

Repeating the command is safe: it makes one run.`,
		Example: `  rondo run continue first --as second
  rondo run continue first --as second --set steps=200 --set sampling.temperature=0.8
  rondo run continue first --as second --file run.yaml --json`,
		RunE: plane.RunCommand(g, func(cmd *cobra.Command, args []string, p *plane.Plane) error {
			answer, err := continueRun(cmd.Context(), p, args[0], o)
			if err != nil {
				return fmt.Errorf("continue run %s as %s: %w", args[0], o.as, err)
			}
			return app.Show(cmd, g, answer, func(w io.Writer) error { return printContinued(w, answer) })
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.as, "as", "", "name of the new run")
	f.StringVar(&o.file, "file", "",
		"run file (YAML) in place of the old run's; without tasks in it, the old run's tasks stay")
	f.StringArrayVar(&o.set, "set", nil, "change a setting of the run file, path=value; may be repeated")
	_ = cmd.MarkFlagRequired("as")
	o.AddSandboxFlags(cmd)
	o.AddKeysFlag(f)
	return cmd
}

func printContinued(w io.Writer, c continued) error {
	_, err := fmt.Fprintf(w,
		"run %s continues %s (%s) as it was at event %d: policy version %d, %d tasks, %d pass rates, %d baselines, %d tasks that do not fit\n",
		c.Run, c.Continues, c.State, c.Until, c.PolicyVersion, c.Tasks, c.PassRates, c.Baselines, c.Misfits)
	return err
}

// continueRun opens the new run. Where an earlier call of the command has opened it,
// it states the same again.
func continueRun(ctx context.Context, p *plane.Plane, old string, o continuing) (continued, error) {
	if !events.ValidRun(o.as) || o.as == old {
		return continued{}, fmt.Errorf("--as %q: use another name of letters, digits, - and _, at most 64", o.as)
	}
	state, err := stopped(ctx, p.Log, old)
	if err != nil {
		return continued{}, err
	}
	f, err := nextRunFile(ctx, p, old, o)
	if err != nil {
		return continued{}, err
	}
	opened := events.RunOpened{Config: f.RunConfig}
	for range 2 { // what another call has opened between the look and the submission is looked at again
		var until uint64
		if until, err = openedBefore(ctx, p.Log, old, o.as); err != nil {
			return continued{}, err
		}
		if opened.Continues, err = replay.Learnt(ctx, p.Log.Reader, old, until, f.RunConfig); err != nil {
			return continued{}, err
		}
		if err = submitContinued(ctx, p, o.as, opened); !errors.Is(err, eventlog.ErrRefused) {
			break
		}
	}
	return tellContinued(o.as, state, opened), err
}

// stopped is the state of a run that may be continued.
func stopped(ctx context.Context, log *eventlog.Log, run string) (state string, err error) {
	state, reason, err := log.RunState(ctx, run)
	if err != nil {
		return state, err
	}
	switch state {
	case "open":
		err = fmt.Errorf("the run is open, and two runs would train its policy: `rondo run close %s` first, or `rondo run pause %s`", run, run)
	case eventlog.StateLost, eventlog.StateRestoring, eventlog.StateBehind:
		err = fmt.Errorf("the run is %s, and what it has learnt is not all there: %s", state, reason)
	}
	return state, err
}

// nextRunFile is the configuration of the new run.
func nextRunFile(ctx context.Context, p *plane.Plane, old string, o continuing) (f opening.RunFile, err error) {
	cfg, err := p.Log.RecordedConfig(ctx, old)
	if err != nil {
		return f, err
	}
	f.RunConfig = cfg
	if o.file != "" {
		if f, err = opening.ReadRunFile(o.file); err != nil {
			return f, err
		}
		f.Tasks = cfg.Tasks
	}
	if f.TasksDir != "" {
		if _, err := f.TakeTasks(ctx, p.Store); err != nil {
			return f, err
		}
	}
	if err := f.TakeAgent(ctx, p.Store); err != nil {
		return f, err
	}
	if len(o.set) > 0 {
		if f.RunConfig, err = replay.ChangeSettings(f.RunConfig, o.set); err != nil {
			return f, err
		}
	}
	if err := opening.ListServers(ctx, p, o.as, &f, o.Settings); err != nil {
		return f, err
	}
	return f, f.Check()
}

// openedBefore is the event of old until which a run counts that continues it already; 0
// where there is no such run.
func openedBefore(ctx context.Context, log *eventlog.Log, old, run string) (until uint64, err error) {
	first, err := log.Event(ctx, run, 1)
	if errors.Is(err, eventlog.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	opened, err := events.Data[events.RunOpened](first)
	if err == nil && (opened.Continues == nil || opened.Continues.Run != old) {
		err = fmt.Errorf("there is a run %q already, which does not continue %s: choose another name", run, old)
	}
	if err != nil {
		return 0, err
	}
	return opened.Continues.Until, nil
}

// submitContinued states the opening, under an ID of its own: another call may state the same, and
// is refused or answered by itself. The intake takes equal content once.
func submitContinued(ctx context.Context, p *plane.Plane, run string, opened events.RunOpened) error {
	_, err := plane.Submit(ctx, p, eventlog.Submission{Run: run, Type: events.RunOpenedType, Entity: run, Data: opened,
		ID: nats.NewInbox()[7:]})
	return err
}

func tellContinued(run, state string, opened events.RunOpened) continued {
	before := opened.Continues
	c := continued{Run: run, State: state, Tasks: len(opened.Config.Tasks)}
	c.Continues, c.Until, c.PolicyVersion = before.Run, before.Until, before.PolicyVersion
	for _, task := range before.Tasks {
		if task.PassRate != nil {
			c.PassRates++
		}
		if task.Baseline != nil {
			c.Baselines++
		}
		if task.Misfit {
			c.Misfits++
		}
	}
	if pinned := opened.Config.PolicyVersion; pinned != nil {
		c.PolicyVersion = *pinned
	}
	return c
}
