// Package tasks has the commands that check, show and import task packs.
package tasks

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/opening"
	"github.com/rondo-rl/rondo/cli/scaffold"
	"github.com/rondo-rl/rondo/cli/service"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/tasks"
)

// New makes the command `rondo tasks`.
func New(g *app.Global) *cobra.Command {
	cmd := &cobra.Command{Use: "tasks", Short: "Check, show and try tasks"}
	cmd.AddCommand(newTasksLint(g), newTasksShow(g), newTasksRun(g), newTasksBuild(g),
		newTasksImport(g), scaffold.NewTask(g))
	return cmd
}

func packFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "tasks", "",
		"task pack: a folder of Harbor task folders (default: the pack small, which the demo trains on)")
}

func newTasksLint(g *app.Global) *cobra.Command {
	s := service.DefaultSettings()
	cmd := &cobra.Command{
		Use:   "lint [DIR]",
		Short: "Prove that each task is sound: doing nothing scores 0, its solution scores 1, three times over",
		Long: `Prove that each task is sound. Lint reports one of these results for each task:

  ok                  doing nothing scores 0 and its solution scores 1, three times over
  warnings            the same, and its author should look at something
  in-process          the same for honest work, but code that the tests run shares their process or sandbox and can decide its own reward.
                      A run trains on it only if its run file says so (min_verifier); how to do better is said
  not sound           it does not measure what it should, or is no task
  cannot be honoured  it asks for what Rondo does not have; the field is named

Without DIR it checks the pack small, which the demo trains on.

Of a task that is not sound, the end of the verifier's log is shown. What is ok, in-process or has warnings is noted on this machine as
proven, until its files change: "rondo run open" tells how many tasks of a run are not.

Images are not built here (see "rondo tasks build"): the tree comes from what environment/Dockerfile copies, from the folder
that [metadata.rondo] snapshot names, or from the task's image. The verifier always runs in a fresh sandbox of its own.`,
		Example: `  rondo tasks lint
  rondo tasks lint ./my-tasks --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, loadErr := opening.LoadTasks(strings.Join(args, ""))
			reports := tasks.Refused(loadErr)
			if len(list)+len(reports) == 0 && loadErr != nil {
				return loadErr
			}
			bad := len(reports)
			for _, r := range reports {
				if !g.JSON {
					printLint(cmd, r)
				}
			}
			for _, t := range list {
				app.NewProgress(g).Show("linting %s", t.Name)
				r := tasks.Lint(cmd.Context(), t, tasks.LintOptions{Machine: s.Machine})
				if err := cmd.Context().Err(); err != nil {
					return err
				}
				if !r.OK {
					bad++
				}
				if reports = append(reports, r); !g.JSON {
					printLint(cmd, r)
				}
			}
			if g.JSON {
				if err := app.PrintJSON(cmd.OutOrStdout(), reports); err != nil {
					return err
				}
			}
			if bad > 0 {
				return &app.ExitError{Code: app.ExitFindings,
					Err: fmt.Errorf("%d of %d tasks are not sound, or cannot be honoured", bad, len(reports))}
			}
			return nil
		},
	}
	s.AddSandboxFlags(cmd)
	return cmd
}

func printLint(cmd *cobra.Command, r tasks.Report) {
	w := cmd.OutOrStdout()
	state := r.Verdict
	if r.Field != "" {
		state += ": " + r.Field
	}
	if r.Verifier != "" {
		state += " (verifier: " + r.Verifier + ")"
	}
	fmt.Fprintf(w, "%-24s %s\n", r.Task, state)
	for _, p := range r.Problems {
		fmt.Fprintf(w, "    %s\n", p)
	}
	for _, p := range r.Warnings {
		fmt.Fprintf(w, "    warning: %s\n", p)
	}
	printLog(w, "doing nothing", r.Nothing)
	printLog(w, "the solution", r.Solution)
}

// printLog shows what the verifier wrote at the first attempt whose reward is not the wanted one.
func printLog(w io.Writer, who string, attempts []tasks.Attempt) {
	i := slices.IndexFunc(attempts, func(a tasks.Attempt) bool { return a.Log != "" })
	if i < 0 {
		return
	}
	fmt.Fprintf(w, "    the verifier's log (%s, attempt %d):\n", who, i+1)
	for line := range strings.Lines(strings.TrimRight(app.Clean(attempts[i].Log), "\n")) {
		fmt.Fprintf(w, "    | %s\n", strings.TrimRight(line, "\n"))
	}
}

func newTasksShow(g *app.Global) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "show [TASK]", Short: "List the tasks of a pack, or show one", Example: "  rondo tasks show password",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := opening.LoadTasks(dir)
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if len(args) == 0 {
				return listTasks(cmd, g, list)
			}
			t, err := pickTask(list, args[0])
			if err != nil {
				return err
			}
			if err := t.OpenImage(cmd.Context(), service.DefaultSettings().ToolchainCache); err != nil {
				return err
			}
			files, err := snapshotFiles(t)
			if err != nil {
				return err
			}
			if g.JSON {
				return app.PrintJSON(w, map[string]any{
					"name": t.Name, "digest": t.Digest, "instruction": instructions(t),
					"difficulty": t.Difficulty, "keywords": t.Keywords,
					"workdir": t.Workdir, "toolchains": t.Toolchains, "verifier_timeout": t.VerifierTimeout.String(),
					"files": files, "warnings": t.Warnings,
					"verifier": t.Verifier(),
				})
			}
			fmt.Fprintf(w, "%s (%s) in %s, verifier %s, sha256 %s\n\n%s\n\nfiles:\n  %s\n",
				t.Name, t.Difficulty, t.Workdir, t.Verifier(), t.Digest, instructions(t), strings.Join(files, "\n  "))
			return nil
		},
	}
	packFlag(cmd, &dir)
	return cmd
}

// instructions is what a task asks of its agent, in each of its stages.
func instructions(t *tasks.Task) string {
	if len(t.Stages) == 0 {
		return t.Instruction
	}
	var all []string
	for _, s := range t.Stages {
		all = append(all, "stage "+s.Name+": "+s.Instruction)
	}
	return strings.Join(all, "\n\n")
}

func listTasks(cmd *cobra.Command, g *app.Global, list []*tasks.Task) error {
	type line struct {
		Name       string   `json:"name"`
		Difficulty string   `json:"difficulty"`
		Toolchains []string `json:"toolchains"`
		Keywords   []string `json:"keywords"`
		Verifier   string   `json:"verifier"`
	}
	var lines []line
	for _, t := range list {
		lines = append(lines, line{t.Name, t.Difficulty, t.Toolchains, t.Keywords, t.Verifier()})
	}
	if g.JSON {
		return app.PrintJSON(cmd.OutOrStdout(), lines)
	}
	w := app.NewColumns(cmd.OutOrStdout())
	fmt.Fprintln(w, "TASK\tDIFFICULTY\tVERIFIER\tTOOLCHAINS\tKEYWORDS")
	for _, l := range lines {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", l.Name, l.Difficulty, l.Verifier, strings.Join(l.Toolchains, ","),
			strings.Join(l.Keywords, ","))
	}
	return w.Flush()
}

func pickTask(list []*tasks.Task, name string) (*tasks.Task, error) {
	i := slices.IndexFunc(list, func(t *tasks.Task) bool { return t.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("the pack has no task %q; `rondo tasks show` lists them", name)
	}
	return list[i], nil
}

func snapshotFiles(t *tasks.Task) ([]string, error) {
	var files []string
	err := fs.WalkDir(t.Snapshot, ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	return files, err
}

func newTasksRun(g *app.Global) *cobra.Command {
	s := service.DefaultSettings()
	var dir, workspace, stage string
	cmd := &cobra.Command{
		Use:   "run TASK",
		Short: "Run a task's verifier over its snapshot, or over a working copy",
		Example: `  rondo tasks run password
  rondo tasks run password --workspace ./my-fix`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := opening.LoadTasks(dir)
			if err != nil {
				return err
			}
			t, err := pickTask(list, args[0])
			if err != nil {
				return err
			}
			if err := t.OpenImage(cmd.Context(), s.ToolchainCache); err != nil {
				return err
			}
			tree := t.Snapshot
			if workspace != "" {
				tree = os.DirFS(workspace)
			}
			in, err := t.InStage(stage)
			if err != nil {
				return err
			}
			outcome, err := verify(cmd.Context(), in, tree, s)
			if err != nil {
				return fmt.Errorf("task %s: %w", t.Name, err)
			}
			if g.JSON {
				return app.PrintJSON(cmd.OutOrStdout(), map[string]any{
					"task": t.Name, "reward": outcome.Reward, "components": outcome.Components,
					"exit_code": outcome.ExitCode, "verifier": outcome.Verifier, "seconds": outcome.Duration.Seconds(),
					"log": string(outcome.Log),
				})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%sreward %g (exit code %d, verifier %s, %.2f s)\n", outcome.Log,
				outcome.Reward, outcome.ExitCode, outcome.Verifier, outcome.Duration.Seconds())
			return nil
		},
	}
	packFlag(cmd, &dir)
	cmd.Flags().StringVar(&workspace, "workspace", "", "directory to score instead of the snapshot")
	cmd.Flags().StringVar(&stage, "stage", "",
		"of a task of several stages: the one whose tests are run (default: the last)")
	s.AddSandboxFlags(cmd)
	return cmd
}

// verify scores a tree as the scorer would.
func verify(ctx context.Context, t *tasks.Task, tree fs.FS, s service.Settings) (verifier.Outcome, error) {
	boxes, err := s.Machine.Sandboxes(ctx, t)
	if err != nil {
		return verifier.Outcome{}, err
	}
	spec, err := boxes.Verifier(ctx, t.Name)
	if err != nil {
		return verifier.Outcome{}, err
	}
	snapshot, err := tasks.Pack(tree)
	if err != nil {
		return verifier.Outcome{}, err
	}
	defer snapshot.Close()
	spec.Snapshot = snapshot.Open
	if spec.Tests, err = sandbox.Pack(t.Tests); err != nil {
		return verifier.Outcome{}, err
	}
	return verifier.Run(ctx, spec)
}
