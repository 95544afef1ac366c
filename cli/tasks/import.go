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
	cmd := &cobra.Command{
		Use:   "swebench SOURCE DIR",
		Short: "Make task folders of SWE-bench-style instances",
		Long: `Make task folders of SWE-bench-style instances: a .json or .jsonl file of them, or a folder with tasks/INSTANCE/task.yaml,
tests.json, problem_statement.md, gold.patch, test.patch and eval.sh. Nothing is downloaded: --repo names a repository's
folder, or its Git repository, of which base_commit is taken. The agent sees a repository of one commit. Logs are read of pytest, go test
and unittest; "rondo tasks lint DIR" then shows whether each task fails without its fix and passes with it on this machine.`,
		Example: `  rondo tasks import swebench ./instances.jsonl ./my-tasks --repo psf/requests=../requests
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
			written := []string{}
			var errs []error
			for _, instance := range list {
				if len(only) > 0 && !slices.Contains(only, instance.ID) {
					continue
				}
				if err := instance.Write(cmd.Context(), args[1], found); err != nil {
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
	return cmd
}
