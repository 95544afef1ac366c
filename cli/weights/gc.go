package weights

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/cli/tables"
	"github.com/rondo-rl/rondo/gc"
)

// filesAge is the age from which on a file that no version names is garbage, unless
// versions are collected sooner.
const filesAge = 24 * time.Hour

// collectedReport is what `rondo weights gc` answers.
type collectedReport struct {
	gc.WeightsReport
	// Deletes is false for a dry run.
	Deletes bool `json:"deletes"`
}

func newGC(g *app.Global) *cobra.Command {
	var olderThan time.Duration
	var keep int
	var remove bool
	cmd := &cobra.Command{
		Use:   "gc POLICY",
		Short: "Find the versions that are old and that nobody needs, and delete their files with --delete",
		Args:  cobra.ExactArgs(1),
		Long: `Gc finds the versions of a policy that were replaced --older-than ago, all but the --keep newest ones. It never takes
  - the current version, and the one before it;
  - versions from which on an open run trains (staleness.max), those that an open run pins (policy_version), and those from which on its trainer
    goes on after a crash (its last checkpoint);
  - a version that a replica serves;
  - a file that another version, or a submission that is not answered yet, names.
Without --delete nothing is deleted. With it, collected versions stay in rondo weights list, with their manifest; their files and deltas are deleted. Files
that no version names, as of rejected submissions, are deleted, too, when they are a day old. Publishers may be at work meanwhile. A gc that
is interrupted is finished by the next one.`,
		Example: `  rondo weights gc my-model
  rondo weights gc my-model --older-than 720h --keep 50 --delete`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if olderThan < gc.LeastAge {
				return fmt.Errorf("--older-than %s: must be at least %s, as uploads may be on their way to the log",
					olderThan, gc.LeastAge)
			}
			if keep < gc.LeastVersions {
				return fmt.Errorf("--keep %d: must be at least %d", keep, gc.LeastVersions)
			}
			p, err := plane.Connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.Close()
			if _, err := current(cmd.Context(), p, args[0]); err != nil {
				return err
			}
			now := time.Now()
			retention := gc.WeightRetention{ReplacedBefore: now.Add(-olderThan), Keep: keep,
				Cutoff: now.Add(-min(filesAge, olderThan))}
			report, err := gc.CollectWeights(cmd.Context(), p.Log.Archive, args[0], retention, remove)
			if err != nil {
				return err
			}
			return app.Show(cmd, g, collectedReport{report, remove},
				func(w io.Writer) error { return tables.PrintWeights(w, report, remove) })
		},
	}
	f := cmd.Flags()
	f.DurationVar(&olderThan, "older-than", 7*24*time.Hour, "keep versions that were current until less than this ago")
	f.IntVar(&keep, "keep", 20, "keep this many of the newest versions; replicas fold up to 16 deltas")
	f.BoolVar(&remove, "delete", false, "delete the files instead of only naming the versions")
	cmd.ValidArgsFunction = completePolicies(g)
	return cmd
}
