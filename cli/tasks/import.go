package tasks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/tasks/swebench"
	"github.com/rondo-rl/rondo/tasks/terminalbench"
)

func newTasksImport(g *app.Global) *cobra.Command {
	cmd := &cobra.Command{Use: "import", Short: "Make task folders of other formats"}
	cmd.AddCommand(newTasksImportSWEBench(g), newTasksImportR2E(g), newTasksImportTerminalBench(g),
		newTasksImportGit(g), newTasksImportSessions(g))
	return cmd
}

// imported is what an import has written, and what it could not.
type imported struct {
	dir     string
	only    []string
	repos   swebench.Repositories
	written []string
	errs    []error
}

// importInto begins an import of instances into a folder: of these alone, where any are named.
func importInto(dir string, only, repos []string) (*imported, error) {
	found, err := swebench.ParseRepositories(repos)
	return &imported{dir: dir, only: only, repos: found}, err
}

// add writes an instance, if it is one of those that are wanted, or notes what was wrong with its
// row. A row that does not say which one it is may be of any.
func (im *imported) add(ctx context.Context, instance swebench.Instance, wrong error) {
	if len(im.only) > 0 && !slices.Contains(im.only, instance.ID) && (wrong == nil || instance.ID != "") {
		return
	}
	if wrong == nil {
		wrong = instance.Write(ctx, im.dir, im.repos)
	}
	if wrong != nil {
		im.errs = append(im.errs, wrong)
		return
	}
	im.written = append(im.written, instance.ID)
}

// print tells what is there now.
func (im *imported) print(g *app.Global, source string, out io.Writer) (err error) {
	if len(im.written)+len(im.errs) == 0 {
		return fmt.Errorf("%s has no such task", source)
	}
	if g.JSON {
		err = app.PrintJSON(out, map[string]any{"written": append([]string{}, im.written...)})
	} else {
		_, err = fmt.Fprintf(out, "%d tasks are in %s\n", len(im.written), im.dir)
	}
	return errors.Join(append(im.errs, err)...)
}

func newTasksImportR2E(g *app.Global) *cobra.Command {
	var repos, only []string
	var command string
	cmd := &cobra.Command{
		Use:   "r2egym SOURCE DIR",
		Short: "Make task folders of rows of R2E-Gym",
		Long: `Make task folders of rows of R2E-Gym: a file with a JSON object on each line, in the fields of its data sets. The tests are those of the row; those that
expected_output_json has as PASSED must pass, and what it has otherwise may end in any way. Rows whose tests another program than pytest runs are refused.

A task's image is the row's without the tests that lie in it: "rondo tasks build DIR" makes it. With --repo the workspace is the repository before the row's commit, and
the tests run with this machine's programs, by --test-cmd. Nothing is downloaded. "rondo tasks lint DIR" then shows whether each task fails without its fix and
passes with it on this machine.`,
		Example: `  rondo tasks import r2egym ./r2egym.jsonl ./my-tasks
  rondo tasks import r2egym ./r2egym.jsonl ./my-tasks --instance numpy-0123456789ab
  rondo tasks import r2egym ./r2egym.jsonl ./my-tasks --repo numpy/numpy=../numpy --test-cmd 'python3 -m pytest -rA r2e_tests'`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			im, err := importInto(args[1], only, repos)
			if err != nil {
				return err
			}
			file, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer file.Close()
			err = swebench.ReadR2E(file, command, func(instance swebench.Instance, wrong error) {
				im.add(cmd.Context(), instance, wrong)
			})
			if err != nil {
				return errors.Join(append(im.errs, fmt.Errorf("%s: %w", args[0], err))...)
			}
			return im.print(g, args[0], cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringArrayVar(&repos, "repo", nil, "PATH of the repository, or OWNER/NAME=PATH; may be repeated")
	cmd.Flags().StringSliceVar(&only, "instance", nil, "import these alone")
	cmd.Flags().StringVar(&command, "test-cmd", "",
		"command that runs the tests in r2e_tests, in place of the image's run_tests.sh")
	return cmd
}

func newTasksImportTerminalBench(g *app.Global) *cobra.Command {
	var only []string
	cmd := &cobra.Command{
		Use:   "terminal-bench SOURCE DIR",
		Short: "Make task folders of Terminal-Bench's first layout",
		Long: `Make task folders of tasks in Terminal-Bench's first layout: a folder with task.yaml, docker-compose.yaml, Dockerfile, run-tests.sh, solution.sh and
tests/, or a folder of such folders. The environment is the rest of a folder, without tests and solution, and the exit code of run-tests.sh is the verdict.
Tasks that need more than one sandbox, such as other services or volumes, are refused by the field's name. So are parsers other than pytest's, and Dockerfiles that
copy the tests or the solution, where the agent could read them.

"rondo tasks build DIR" then makes the images that the tasks need, and "rondo tasks lint DIR" shows whether each task fails as it is and passes with its solution.`,
		Example: `  rondo tasks import terminal-bench ./terminal-bench/tasks ./my-tasks
  rondo tasks import terminal-bench ./terminal-bench/tasks ./my-tasks --task hello-world
  rondo tasks import terminal-bench ./hello-world ./my-tasks`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			names, err := terminalbench.Tasks(args[0])
			if err != nil {
				return err
			}
			im, ownShell := imported{dir: args[1]}, 0
			for _, name := range names {
				if len(only) > 0 && !slices.Contains(only, name) {
					continue
				}
				written, err := terminalbench.Convert(filepath.Join(args[0], name), im.dir)
				if err != nil {
					im.errs = append(im.errs, err)
					continue
				}
				im.written = append(im.written, written.Name)
				if written.OwnShell {
					ownShell++
				}
			}
			if ownShell > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(),
					"%d of them ask for tests in the agent's shell. Their tests run in a shell of their own: \"rondo tasks lint\" shows which pass so\n", ownShell)
			}
			return im.print(g, args[0], cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringSliceVar(&only, "task", nil, "import these alone")
	return cmd
}

func newTasksImportSWEBench(g *app.Global) *cobra.Command {
	var repos, only []string
	var specsFile string
	var given swebench.Spec
	cmd := &cobra.Command{
		Use:   "swebench SOURCE DIR",
		Short: "Make task folders of SWE-bench-style instances",
		Long: `Make task folders of SWE-bench-style instances: a .json or .jsonl file of them, or a folder with tasks/INSTANCE/task.yaml,
tests.json, problem_statement.md, gold.patch, test.patch and eval.sh. Nothing is downloaded: --repo names a repository's
folder, or its Git repository, of which base_commit is taken. The agent sees a repository of one commit. Reports are read of pytest,
unittest, go test, cargo test, jest, SymPy's bin/test and JUnit's XML; "rondo tasks lint DIR" then shows whether each task fails without its fix and passes with it on this machine.

Published rows do not say how their tests are run. For the repositories of SWE-bench and SWE-bench Verified it is known. For others (SWE-Gym) --test-cmd and
--log-parser say it for all rows, a --specs file by repository and version, where "*" stands for all:

  {"psf/requests": {"*": {"log_parser": "pytest"}, "2.4": {"test_cmd": "pytest -rA"}}}

Such a command gets the files of the instance's test patch as arguments. --image, or docker_image in a row or in the file, names the container image
with the repository in /testbed and what its tests need; {id} in it stands for the instance as SWE-bench's images are named.`,
		Example: `  rondo tasks import swebench ./instances.jsonl ./my-tasks --repo psf/requests=../requests
  rondo tasks import swebench ./verified.jsonl ./my-tasks --image 'swebench/sweb.eval.x86_64.{id}:latest'
  rondo tasks import swebench ./lite.jsonl ./my-tasks --repo ../requests --test-cmd 'pytest -rA' --log-parser pytest
  rondo tasks import swebench ./sweb ./my-tasks --repo ./repository --instance psf__requests-1142`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			im, err := importInto(args[1], only, repos)
			if err != nil {
				return err
			}
			specs, err := specsOf(specsFile, given)
			if err != nil {
				return err
			}
			err = swebench.Read(args[0], func(instance swebench.Instance, wrong error) {
				im.add(cmd.Context(), instance.Complete(specs), wrong)
			})
			if err != nil {
				return errors.Join(append(im.errs, err)...)
			}
			return im.print(g, args[0], cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringArrayVar(&repos, "repo", nil, "PATH of the repository, or OWNER/NAME=PATH; may be repeated")
	cmd.Flags().StringSliceVar(&only, "instance", nil, "import these alone")
	cmd.Flags().StringVar(&specsFile, "specs", "", "JSON file that says how each repository and version runs its tests")
	cmd.Flags().StringVar((*string)(&given.TestCommand), "test-cmd", "",
		"command that runs the tests, where neither row nor --specs says one")
	cmd.Flags().StringVar(&given.LogParser, "log-parser", "",
		"test program that it runs, the same: pytest, gotest, unittest, node, cargo, jest, sympy or junit")
	cmd.Flags().StringVar(&given.Image, "image", "",
		"container image with what the tests need, the same; {id} is the instance")
	return cmd
}

// specsOf is the table in a file, over what was given for all.
func specsOf(file string, given swebench.Spec) (swebench.Specs, error) {
	specs := swebench.Specs{}
	if file != "" {
		var err error
		if specs, err = swebench.ReadSpecs(file); err != nil {
			return nil, err
		}
	}
	return specs.Else(given), nil
}
