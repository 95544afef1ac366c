package tasks

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/service"
	"github.com/rondo-rl/rondo/tasks/commits"
)

func newTasksImportGit(g *app.Global) *cobra.Command {
	s := service.DefaultSettings()
	o := commits.Options{Jobs: max(1, runtime.NumCPU()/2), Timeout: 5 * time.Minute}
	var since string
	cmd := &cobra.Command{
		Use:   "git REPO DIR",
		Short: "Make task folders of the commits of a repository",
		Long: `Make task folders of the commits of a Git repository on this machine that change both tests and code of Go, Python, or JavaScript and
TypeScript, from new to old. The commit before is what an
agent gets, the commit's message is the instruction, its tests are the verifier, and the rest of it is the solution.

The tests of a commit run three times with the fix and three times without it, in sandboxes. Those that pass with it each time and never without it must begin to pass;
those that pass each time on both sides must go on passing. Why other commits become no tasks is told at the end, and stands in DIR/.commits.json for each of them. What is
there is not run again when the command is started again. Without that file all commits that became no task are tried again.

The merge of a GitHub pull request stands for it: its title is the instruction, and its commits become no tasks beside it.

Modules of Go are fetched from the module proxies of "go env GOPROXY", with go.mod and go.sum alone, and become a part of the tasks: with GOPROXY=off only those are taken that
are on this machine. Packages of npm are fetched as the lock file names them, from the registry of "npm config get registry",
and npm does not run. Nothing else is downloaded: tests run without a network, with this machine's Go and node, and its python3 with what that has in /usr. "rondo tasks lint DIR" proves
the tasks three times over.`,
		Example: `  rondo tasks import git ./my-repository ./my-tasks --max 20
  rondo tasks import git ./my-repository ./my-tasks --since 2026-01-31 --jobs 4 --json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			o.Repository, o.Dir, o.Machine = args[0], args[1], s.Machine
			if since != "" {
				if o.Since, err = time.Parse(time.DateOnly, since); err != nil {
					return fmt.Errorf("--since %q: want a day such as 2026-01-31", since)
				}
			}
			if o.Max < 0 || o.Jobs < 1 || o.Timeout <= 0 {
				return fmt.Errorf("--max %d, --jobs %d, --timeout %v: want no less than 0, 1 and a second", o.Max, o.Jobs, o.Timeout)
			}
			progress := app.NewProgress(g)
			o.Progress = func(id string, outcome commits.Outcome, ran bool, err error) {
				switch {
				case err != nil:
					progress.Line("%.12s  this machine failed: %v", id, err)
				case ran:
					progress.Line("%.12s  %s", id, cmp.Or(outcome.Task, outcome.Reason))
				default:
					progress.Show("%.12s  %s", id, cmp.Or(outcome.Task, outcome.Reason))
				}
			}
			report, err := commits.Import(cmd.Context(), o)
			progress.Clear()
			if report.State == "" {
				return err
			}
			if printErr := printHistory(g, cmd.OutOrStdout(), o.Dir, report); printErr != nil {
				return printErr
			}
			switch {
			case cmd.Context().Err() != nil:
				return fmt.Errorf("stopped: the same command goes on from here: %w", context.Cause(cmd.Context()))
			case err == nil && len(report.Failed) > 0:
				return fmt.Errorf("this machine failed at %d commits: the same command tries them again", len(report.Failed))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "only commits from this day on, as 2026-01-31")
	cmd.Flags().IntVar(&o.Max, "max", 0, "stop when so many tasks are there; 0 is no limit")
	cmd.Flags().IntVar(&o.Jobs, "jobs", o.Jobs, "commits at once")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", o.Timeout, "of one run of a commit's tests")
	s.AddSandboxFlags(cmd)
	return cmd
}

// printHistory tells how many commits became tasks, and why the others did not.
func printHistory(g *app.Global, out io.Writer, dir string, r commits.Report) error {
	if g.JSON {
		return app.PrintJSON(out, r)
	}
	fmt.Fprintf(out, "%d of %d commits became tasks in %s, in %s\n", len(r.Tasks), r.Commits-r.Left, dir, time.Duration(r.Seconds*float64(time.Second)).Round(time.Second))
	reasons := slices.SortedFunc(maps.Keys(r.Dropped), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.Dropped[b], r.Dropped[a]), cmp.Compare(a, b))
	})
	for _, reason := range reasons {
		fmt.Fprintf(out, "%6d  %s\n", r.Dropped[reason], reason)
	}
	if len(r.Failed) > 0 {
		fmt.Fprintf(out, "%6d  this machine failed\n", len(r.Failed))
	}
	if r.Left > 0 {
		fmt.Fprintf(out, "%6d  not looked at\n", r.Left)
	}
	return nil
}
