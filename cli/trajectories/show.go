package trajectories

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/export/episode"
)

// showOptions say how much of a rollout is shown.
type showOptions struct {
	turn     int // -1: all of them
	full     bool
	logprobs bool
}

func newTrajectoriesShow(g *app.Global) *cobra.Command {
	var o showOptions
	var color string
	var width int
	cmd := &cobra.Command{
		Use: "show RUN ROLLOUT", Short: "Show one rollout, turn by turn", Args: cobra.ExactArgs(2),
		Long: `Show prints a rollout's task, settings and outcome, then its turns with their tool calls. It shows edits as differences, the calls
of one turn side by side if the terminal is wide enough, and long answers without their middle. It prints control characters
from the model or its tools visibly, so that they do not control the terminal.

A rollout that failed or is not finished has no trajectory file. Show then prints what the log has of it.`,
		Example: `  rondo trajectories show demo-1 g000003-1
  rondo trajectories show demo-1 g000003-1 --turn 4 --full
  rondo trajectories show demo-1 g000003-1 --logprobs --color always | less -R`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := app.NewScreen(cmd.OutOrStdout(), color, width)
			if err != nil {
				return err
			}
			p, err := plane.Connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.Close()
			shown, err := gather(cmd.Context(), p, args[0], args[1])
			if err != nil {
				return err
			}
			if g.JSON {
				return app.PrintJSON(cmd.OutOrStdout(), shown.Trajectory)
			}
			return (&view{s}).rollout(shown, o)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.turn, "turn", -1, "show this turn alone, counted from 0")
	flags.BoolVar(&o.full, "full", false, "leave out nothing of long arguments and answers")
	flags.BoolVar(&o.logprobs, "logprobs", false, "show the tokens of each turn with their probabilities")
	flags.StringVar(&color, "color", app.ColorAuto, "auto (on a terminal, unless NO_COLOR is set), always or never")
	flags.IntVar(&width, "width", -1, "columns to wrap at; 0 does not wrap (default: the terminal's, 0 in a pipe)")
	return cmd
}

// shownRollout is a rollout as it is shown.
type shownRollout struct{ *episode.Episode }

// gather reads what log and store have about a rollout.
func gather(ctx context.Context, p *plane.Plane, run, rollout string) (*shownRollout, error) {
	if err := p.MustRun(ctx, run); err != nil {
		return nil, err
	}
	e, err := episode.Read(ctx, p.Log.Reader, run, rollout, episode.Bounds{})
	if errors.Is(err, episode.ErrUnknown) {
		return nil, fmt.Errorf("run %s has no rollout %s; `rondo trajectories list %s` lists those that have a trajectory",
			run, app.Line(rollout, 80), run)
	}
	return &shownRollout{e}, err
}
