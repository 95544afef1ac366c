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
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/cli/service"
	"github.com/rondo-rl/rondo/tasks/commits"
)

func newTasksImportSessions(g *app.Global) *cobra.Command {
	s := service.DefaultSettings()
	o := commits.Options{Jobs: max(1, runtime.NumCPU()/2), Timeout: 5 * time.Minute}
	cmd := &cobra.Command{
		Use:   "sessions RUN DIR",
		Short: "Make task folders of users' queries whose answers they corrected",
		Long: `Make task folders of the queries of a run whose users have agreed and changed what the agent left, from new to old. The query is the instruction, the files that it began
with are what an agent gets, the tests in the user's final files are the verifier, and the rest of what the user has in the end is the solution. A product states these files with
its feedback: record_feedback(…, repository=…) of the Python client.

The tests run as those of "rondo tasks import git", three times with the user's final files and three times with those that the query began with, and then with the agent's answer. A
query becomes no task if no test shows the difference, or if the agent's answer passes as well. Why others become no tasks is told at the end, and stands in DIR/.sessions.json for
each whose files were looked at. What is there is not run again when the command is started again.

Of users who have not agreed nothing is looked at; the task of a query whose rollout is invalidated is removed. Secrets in files and queries are replaced by marks before tests run.
A query is looked at again when its user hands in other files. What the files name as dependencies is fetched as "rondo tasks import git" does.`,
		Example: `  rondo tasks import sessions product ./my-tasks --dir /srv/rondo
  rondo tasks import sessions product ./my-tasks --max 20 --json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := plane.Connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.Close()
			if err := p.MustRun(cmd.Context(), args[0]); err != nil {
				return err
			}
			o.Dir, o.Machine = args[1], s.Machine
			return importHistory(cmd, g, o, "queries",
				func(ctx context.Context, o commits.Options) (commits.Report, error) {
					return commits.ImportSessions(ctx, o, p.Log.Reader, args[0])
				})
		},
	}
	addHistoryFlags(cmd, &o, &s, "queries")
	return cmd
}

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
			return importHistory(cmd, g, o, "commits", commits.Import)
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "only commits from this day on, as 2026-01-31")
	addHistoryFlags(cmd, &o, &s, "commits")
	return cmd
}

// addHistoryFlags adds those of how tests run in an import of what has a name.
func addHistoryFlags(cmd *cobra.Command, o *commits.Options, s *service.Settings, name string) {
	cmd.Flags().IntVar(&o.Max, "max", 0, "stop when so many tasks are there; 0 is no limit")
	cmd.Flags().IntVar(&o.Jobs, "jobs", o.Jobs, name+" at once")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", o.Timeout, "of one run of the tests")
	s.AddSandboxFlags(cmd)
}

// importHistory runs an import with its progress, and prints its report.
func importHistory(cmd *cobra.Command, g *app.Global, o commits.Options, name string,
	run func(context.Context, commits.Options) (commits.Report, error)) error {
	if o.Max < 0 || o.Jobs < 1 || o.Timeout <= 0 {
		return fmt.Errorf("--max %d, --jobs %d, --timeout %v: want no less than 0, 1 and a second", o.Max, o.Jobs,
			o.Timeout)
	}
	progress := app.NewProgress(g)
	o.Progress = func(id string, outcome commits.Outcome, ran bool, err error) {
		if name == "commits" {
			id = fmt.Sprintf("%.12s", id)
		}
		switch {
		case err != nil:
			progress.Line("%s  this machine failed: %v", id, err)
		case ran:
			progress.Line("%s  %s", id, cmp.Or(outcome.Task, outcome.Reason))
		default:
			progress.Show("%s  %s", id, cmp.Or(outcome.Task, outcome.Reason))
		}
	}
	report, err := run(cmd.Context(), o)
	progress.Clear()
	if report.State == "" {
		return err
	}
	if printErr := printHistory(g, cmd.OutOrStdout(), o.Dir, name, report); printErr != nil {
		return printErr
	}
	switch {
	case cmd.Context().Err() != nil:
		return fmt.Errorf("stopped: the same command goes on from here: %w", context.Cause(cmd.Context()))
	case err == nil && len(report.Failed) > 0:
		return fmt.Errorf("this machine failed at %d %s: the same command tries them again", len(report.Failed), name)
	}
	return err
}

// printHistory tells how many became tasks, and why the others did not.
func printHistory(g *app.Global, out io.Writer, dir, name string, r commits.Report) error {
	if g.JSON {
		return app.PrintJSON(out, r)
	}
	fmt.Fprintf(out, "%d of %d %s became tasks in %s, in %s\n", len(r.Tasks), r.Found-r.Left, name, dir,
		time.Duration(r.Seconds*float64(time.Second)).Round(time.Second))
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
