package run

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
)

func newRunTasks(g *app.Global) *cobra.Command {
	return &cobra.Command{
		Use: "tasks RUN", Short: "Show which tasks teach something, and which are never solved",
		Args: cobra.ExactArgs(1),
		Long: `Tasks prints a row for each task of a run. SIGNAL counts the complete groups whose rewards differ: of the
others nothing is learnt. PASSED counts rollouts with the reward curriculum.pass_at of the run file, 1
by default. FIRST and LAST are the mean rewards of the task's first complete group and of its last.
A second table has the graded tests that most often did not end as they must.`,
		Example: `  rondo run tasks demo-1
  rondo run tasks demo-1 --json | jq 'select(.remark == "never solved").task'`,
		RunE: plane.RunCommand(g, func(cmd *cobra.Command, args []string, p *plane.Plane) error {
			b := books.New(args[0])
			unmet := unmetTests{books: b, tasks: map[string]*unmetOf{}}
			if err := b.Read(cmd.Context(), p.Log.Reader, unmet.listen); err != nil {
				return err
			}
			pass := 1.0
			if c := b.Config.Curriculum; c != nil {
				pass = c.Passes()
			}
			tests := app.NewTable("TASK", "TEST", "TIMES", "MESSAGE")
			table := app.NewTable("TASK", "GROUPS", "SIGNAL", "SCORED", "PASSED", "FAILED", "MEAN",
				"FIRST", "LAST", "REMARK")
			for _, r := range b.Tasks(pass) {
				most, others := unmet.most(r.Task)
				if g.JSON {
					if err := app.PrintJSON(cmd.OutOrStdout(), taskRow{r, most, others}); err != nil {
						return err
					}
					continue
				}
				for _, test := range most {
					tests.Row(app.Line(r.Task, 60), app.Line(test.Test, 80), test.Times, app.Line(test.Message, 80))
				}
				if others > 0 {
					tests.Row(app.Line(r.Task, 60), "others", others, "")
				}
				table.Row(app.Line(r.Task, 60), r.Groups, r.Signals, r.Scored, r.Passed, failures(r),
					reward(r.Mean), reward(r.First),
					reward(r.Last), r.Remark)
			}
			if g.JSON {
				return nil
			}
			if err := table.Print(cmd.OutOrStdout()); err != nil || len(unmet.tasks) == 0 {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "\nGraded tests that did not end as they must:")
			return tests.Print(cmd.OutOrStdout())
		}),
	}
}

// taskRow is what is said of a task.
type taskRow struct {
	books.TaskRow
	// Unmet are the graded tests that did not end as they must, the most frequent ones, and
	// OtherUnmet counts the others.
	Unmet      []unmetTest `json:"unmet,omitempty"`
	OtherUnmet int         `json:"other_unmet,omitempty"`
}

// failures are how many rollouts of a task failed, and of which classes.
func failures(r books.TaskRow) string {
	var classes []string
	for _, class := range app.SortedKeys(r.Classes) {
		classes = append(classes, fmt.Sprintf("%s %d", class, r.Classes[class]))
	}
	if len(classes) == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%s)", r.Failed, strings.Join(classes, ", "))
}

// reward is one in a table, a dash for none.
func reward(r *float64) any {
	if r == nil {
		return "-"
	}
	return *r
}
