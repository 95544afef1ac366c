package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// forked is what `rondo fork` answers.
type forked struct {
	Run      string `json:"run"`
	Rollout  string `json:"rollout"`
	Turn     int    `json:"turn"`
	Count    int    `json:"count"`
	Sequence uint64 `json:"sequence"`        // of the request on the run's log
	Group    string `json:"group,omitempty"` // of the forks, once it is opened
}

// NewFork makes the command `rondo fork`.
func NewFork(g *app.Global) *cobra.Command {
	var run string
	var wait time.Duration
	asked := events.RolloutForked{}
	cmd := &cobra.Command{
		Use: "fork ROLLOUT --turn N --count K", Short: "Start new rollouts that continue after a turn of a rollout",
		Args: cobra.ExactArgs(1),
		Long: `Fork asks for a new group of the same run, whose members have the conversation and the workspace of a rollout as they were after one of its
turns, and go on from there with the run's policy as it is now. They are scored, compared with one another and trained on like other rollouts,
but for the turns that they were given: those are context, without loss. They count among limits.turns.

The group takes a place of the run's capacity, behind users' queries and before tasks; in a paused run it waits. Processes that the rollout had
started, and what it left outside of the workspace, are not there.`,
		Example: `  rondo fork g000003-1 --turn 4 --count 8
  rondo fork g000003-1 --turn 4 --count 8 --run demo-1 --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if asked.Turn < 0 || asked.Count < 1 {
				return fmt.Errorf(
					"--turn %d, --count %d: turns are counted from 0, and at least one rollout is started",
					asked.Turn, asked.Count)
			}
			p, err := plane.Connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.Close()
			f, err := forkRollout(cmd.Context(), p, run, args[0], asked, wait)
			if err != nil {
				return err
			}
			if g.JSON {
				return app.PrintJSON(cmd.OutOrStdout(), f)
			}
			state := "its group is " + f.Group
			if f.Group == "" {
				state = "its group waits for a place"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "run %s: %d rollouts go on behind turn %d of %s; %s\n", f.Run,
				f.Count, f.Turn, f.Rollout, state)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&run, "run", "", "run of the rollout (default: the one run that has it)")
	f.IntVar(&asked.Turn, "turn", 0, "the last turn that the forks have in common with the rollout, counted from 0")
	f.IntVar(&asked.Count, "count", 1, "how many rollouts to start")
	f.DurationVar(&wait, "wait", 5*time.Second, "how long to wait for the group's opening")
	_ = cmd.MarkFlagRequired("turn")
	return cmd
}

// forkRollout submits the request, and waits for a while until the sampler has taken it up.
func forkRollout(ctx context.Context, p *plane.Plane, run, rollout string, asked events.RolloutForked,
	wait time.Duration) (forked, error) {
	r, err := plane.FindRollout(ctx, p, run, rollout)
	if err != nil {
		return forked{}, err
	}
	asked.Task = r.Started.Task
	answer, err := plane.Submit(ctx, p, eventlog.Submission{Run: r.Run, Type: events.RolloutForkedType, Entity: r.ID,
		Data: asked, ID: nats.NewInbox()[7:]})
	if err != nil {
		return forked{}, err
	}
	f := forked{Run: r.Run, Rollout: r.ID, Turn: asked.Turn, Count: asked.Count, Sequence: answer.Sequence}
	f.Group, err = groupOfFork(ctx, p.Log, f, wait)
	return f, err
}

// groupOfFork is the first group behind a request that is such a fork, "" where none comes in time.
func groupOfFork(ctx context.Context, log *eventlog.Log, f forked, wait time.Duration) (group string, err error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	errFound := errors.New("found")
	filter := events.Event{Run: f.Run, Type: events.GroupOpenedType, Entity: "*"}.Subject()
	err = log.Follow(waiting, f.Run, f.Sequence+1, filter, func(e events.Event) error {
		opened, err := events.Data[events.GroupOpened](e)
		if err != nil {
			return err
		}
		if o := opened.Origin; o != nil && o.Rollout == f.Rollout && o.Turn == f.Turn && opened.Size == f.Count {
			group = e.Entity
			return errFound
		}
		return nil
	})
	if errors.Is(err, errFound) || waiting.Err() != nil && ctx.Err() == nil {
		err = nil
	}
	return group, err
}
