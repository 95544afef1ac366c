package run

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/cli/tables"
	"github.com/rondo-rl/rondo/evaluation/steps"
)

func newRunSteps(g *app.Global) *cobra.Command {
	var feed string
	cmd := &cobra.Command{
		Use: "steps RUN", Short: "Show the figures of each training step", Args: cobra.ExactArgs(1),
		Long: `Steps prints a row for each step that a feed's trainer has taken: reward, staleness, throughput, dropped groups, and what the trainer states of its
log-probabilities. The rows are made of the log alone, so they are the same for a live run, a finished one and an archived one. A step that the trainer
takes again after a rewind keeps its first row.

--json prints every figure: a line for the run, one for each step and one for the end. "complete" is true there when no step can follow.
--follow prints rows as they come, until no step can follow. Where the trainer states gaps of log-probabilities, a row waits for its gap until the next step.`,
		Example: `  rondo run steps demo-1
  rondo run steps demo-1 --feed trainer --json
  rondo run steps demo-1 --follow --json | python3 -m rondo.track demo-1 --to tensorboard`,
		RunE: plane.RunCommand(g, func(cmd *cobra.Command, args []string, p *plane.Plane) error {
			r, err := steps.Describe(cmd.Context(), p.Log.Reader, args[0], feed)
			if err != nil {
				return err
			}
			if g.JSON {
				lines, err := tables.NewStepLines(cmd.OutOrStdout(), r)
				if err != nil {
					return err
				}
				complete, err := steps.Read(cmd.Context(), p.Log.Reader, r, g.Follows, lines.Step)
				if err != nil {
					return err
				}
				return lines.End(complete)
			}
			if g.Follows {
				_, err = steps.Read(cmd.Context(), p.Log.Reader, r, true,
					func(row steps.Row) error { return printStep(cmd.OutOrStdout(), row) })
				return err
			}
			table := app.NewTable("STEP", "TAKEN", "REWARD", "±", "STALENESS", "TURNS", "SCORED", "FAILED",
				"DROPPED", "TOKENS/S", "GAP")
			if _, err = steps.Read(cmd.Context(), p.Log.Reader, r, false, func(row steps.Row) error {
				f := row.Figures
				table.Row(row.Step, row.Time.Local().Format(time.DateTime), cell(f, "reward/mean"),
					cell(f, "reward/std"), cell(f, "staleness/max"), cell(f, "rollout/turns_mean"),
					cell(f, "rollouts/scored"), cell(f, "rollouts/failed"),
					f["groups/dropped_stale"]+f["groups/dropped_filtered"],
					cell(f, "throughput/sampled_tokens_per_second"),
					cell(f, "logprob_gap/mean_abs"))
				return nil
			}); err != nil {
				return err
			}
			return table.Print(cmd.OutOrStdout())
		}),
	}
	cmd.Flags().StringVar(&feed, "feed", "", "feed whose steps are shown (default: the run's first)")
	cmd.Flags().BoolVarP(&g.Follows, "follow", "f", false,
		"print steps as the trainer takes them, until none can follow")
	return cmd
}

// cell is a figure in a table, a dash where it is not known.
func cell(figures map[string]float64, name string) any {
	if v, ok := figures[name]; ok {
		return v
	}
	return "-"
}

func printStep(w io.Writer, row steps.Row) error {
	f := row.Figures
	_, err := fmt.Fprintf(w, "step %d  %s  reward %.4g  staleness %g  scored %g  failed %g\n", row.Step,
		row.Time.Local().Format(time.DateTime), f["reward/mean"], f["staleness/max"],
		f["rollouts/scored"], f["rollouts/failed"])
	return err
}
