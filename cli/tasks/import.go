package tasks

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/tasks/swebench"
)

func newTasksImport(g *app.Global) *cobra.Command {
	cmd := &cobra.Command{Use: "import", Short: "Make task folders of other formats"}
	cmd.AddCommand(newTasksImportSWEBench(g))
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
unittest, go test, cargo test, jest and JUnit's XML; "rondo tasks lint DIR" then shows whether each task fails without its fix and passes with it on this machine.

Published rows (SWE-bench, SWE-Gym) do not say how their tests are run. --test-cmd and --log-parser say it for all of them, a
--specs file by repository and version, where "*" stands for all:

  {"psf/requests": {"*": {"log_parser": "pytest"}, "2.4": {"test_cmd": "pytest -rA"}}}

Such a command gets the files of the instance's test patch as arguments. --image, or docker_image in a row or in the file, names the container image
with the repository in /testbed and what its tests need; {id} in it stands for the instance as SWE-bench's images are named.`,
		Example: `  rondo tasks import swebench ./instances.jsonl ./my-tasks --repo psf/requests=../requests
  rondo tasks import swebench ./lite.jsonl ./my-tasks --specs specs.json --image 'swebench/sweb.eval.x86_64.{id}:latest'
  rondo tasks import swebench ./lite.jsonl ./my-tasks --repo ../requests --test-cmd 'pytest -rA' --log-parser pytest
  rondo tasks import swebench ./sweb ./my-tasks --repo ./repository --instance psf__requests-1142`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := swebench.ParseRepositories(repos)
			if err != nil {
				return err
			}
			list, err := swebench.Read(args[0])
			if err != nil {
				return err
			}
			specs, err := specsOf(specsFile, given)
			if err != nil {
				return err
			}
			written := []string{}
			var errs []error
			for _, instance := range list {
				if len(only) > 0 && !slices.Contains(only, instance.ID) {
					continue
				}
				if err := instance.Complete(specs).Write(cmd.Context(), args[1], found); err != nil {
					errs = append(errs, err)
					continue
				}
				written = append(written, instance.ID)
			}
			if len(written)+len(errs) == 0 {
				return fmt.Errorf("%s has no such instance", args[0])
			}
			if g.JSON {
				err = app.PrintJSON(cmd.OutOrStdout(), map[string]any{"written": written})
			} else {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d tasks are in %s\n", len(written), args[1])
			}
			return errors.Join(append(errs, err)...)
		},
	}
	cmd.Flags().StringArrayVar(&repos, "repo", nil, "PATH of the repository, or OWNER/NAME=PATH; may be repeated")
	cmd.Flags().StringSliceVar(&only, "instance", nil, "import these alone")
	cmd.Flags().StringVar(&specsFile, "specs", "", "JSON file that says how each repository and version runs its tests")
	cmd.Flags().StringVar((*string)(&given.TestCommand), "test-cmd", "", "command that runs the tests, where neither row nor --specs says one")
	cmd.Flags().StringVar(&given.LogParser, "log-parser", "", "test program that it runs, the same: pytest, gotest, unittest, cargo, jest or junit")
	cmd.Flags().StringVar(&given.Image, "image", "", "container image with what the tests need, the same; {id} is the instance")
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
