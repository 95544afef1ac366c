package replay

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
)

// NewDiff makes the command `rondo diff`.
func NewDiff(g *app.Global) *cobra.Command {
	feed := ""
	cmd := &cobra.Command{
		Use:   "diff RUN NEW",
		Short: "Compare a run with its replay: advantages, what was trained on, batch by batch",
		Long: `Diff compares what two runs over the same rollouts made of them: rewards and advantages by group, which rollouts
were trained on and in which step, and their batches. The second run is most often a replay of the first.`,
		Example: "  rondo replay demo-1 --as demo-1-rloo --set advantage.estimator=rloo\n  rondo diff demo-1 demo-1-rloo\n  rondo diff demo-1 demo-1-rloo --json",
		Args:    cobra.ExactArgs(2),
		RunE: plane.Command(g, func(cmd *cobra.Command, args []string, p *plane.Plane) error {
			for _, run := range args {
				if err := p.MustRun(cmd.Context(), run); err != nil {
					return err
				}
			}
			for _, run := range args {
				if feed == "" {
					break
				}
				if err := p.MustFeed(cmd.Context(), run, feed); err != nil {
					return err
				}
			}
			d, err := books.Compare(cmd.Context(), p.Log.Reader, args[0], args[1], feed)
			if err != nil {
				return fmt.Errorf("compare %s with %s: %w", args[0], args[1], err)
			}
			return app.Show(cmd, g, d, func(w io.Writer) error { return printDiff(w, d) })
		}),
	}
	cmd.Flags().StringVar(&feed, "feed", "", "feed that is compared (default: the first)")
	return cmd
}

// shownGroups bounds the groups that are listed; --json has all of them.
const shownGroups = 20

func printDiff(w io.Writer, d books.Diff) error {
	fmt.Fprintf(w, "%d rollouts of both runs, %d of %s alone, %d of %s alone\n", d.Both, d.OnlyA, d.A, d.OnlyB, d.B)
	fmt.Fprintf(w, "trained on by both: %d, by %s alone: %d, by %s alone: %d\n", d.TrainedBoth, d.A,
		d.TrainedOnlyA, d.B, d.TrainedOnlyB)
	fmt.Fprintf(w, "%d advantages differ, by %.4f on average; %d have the other sign\n", d.Changed,
		d.MeanChange, d.SignFlips)
	t := app.NewColumns(w)
	if len(d.Groups) > 0 {
		fmt.Fprintf(t, "\nGROUP\tTASK\tROLLOUT\tREWARD\t→\tADVANTAGE\t→\tOUTCOME\t→\n")
	}
	for i, g := range d.Groups {
		if i == shownGroups {
			fmt.Fprintf(t, "… and %d groups more\n", len(d.Groups)-i)
			break
		}
		for _, m := range g.Members {
			fmt.Fprintf(t, "%s\t%s\t%s\t%.3f\t%.3f\t%.4f\t%.4f\t%s\t%s\n", g.Group, g.Task, m.Rollout, m.A.Reward,
				m.B.Reward, m.A.Advantage, m.B.Advantage, where(m.A), where(m.B))
		}
	}
	if len(d.Batches) > 0 {
		fmt.Fprintf(t, "\nSTEP\tROLLOUTS\t→\tIN BOTH\tREWARD\t→\tSTALENESS\t→\n")
	}
	var a, b []float64
	for _, s := range d.Batches {
		x, y := cells(s.A), cells(s.B)
		fmt.Fprintf(t, "%d\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", s.Step, x[0], y[0], s.Common, x[1], y[1], x[2], y[2])
		if s.A != nil {
			a = append(a, s.A.RewardMean)
		}
		if s.B != nil {
			b = append(b, s.B.RewardMean)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	app.Plot(w, d.A+": mean reward by step", a)
	app.Plot(w, d.B+": mean reward by step", b)
	return nil
}

// where says what became of a rollout.
func where(s books.Side) string {
	switch {
	case s.Step > 0:
		return fmt.Sprintf("%s in step %d", s.Outcome, s.Step)
	case s.Reason != "":
		return fmt.Sprintf("%s: %s", s.Outcome, s.Reason)
	}
	return string(s.Outcome)
}

func cells(b *books.BatchSide) [3]string {
	if b == nil {
		return [3]string{"-", "-", "-"}
	}
	return [3]string{fmt.Sprint(b.Rollouts), fmt.Sprintf("%.3f", b.RewardMean), fmt.Sprint(b.Staleness)}
}
