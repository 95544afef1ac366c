// Package gc is the command that finds and deletes objects to which nothing refers.
package gc

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/books"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/gc"
)

// gcReport is what gc answers.
type gcReport struct {
	OlderThan runfile.Duration `json:"older_than"`
	// Deletes is false for a dry run.
	Deletes   bool              `json:"deletes"`
	Kinds     []gc.KindReport   `json:"kinds"`
	Runs      []gc.OldRun       `json:"runs,omitempty"`
	Forgotten []gc.ForgottenRun `json:"forgotten,omitempty"`
	// Weights are what retention finds of each policy, with --weights-older-than.
	Weights []gc.WeightsReport `json:"weights,omitempty"`
	// Objects are those that nothing reaches, with --list.
	Objects []gc.Candidate `json:"objects,omitempty"`
	// Unfinished are uploads that were removed, as their writers never finished them.
	Unfinished int `json:"unfinished,omitempty"`
}

// New is the command gc.
func New(g *app.Global) *cobra.Command {
	var olderThan, runsOlderThan, forgetOlderThan, weightsOlderThan time.Duration
	var keepRuns, keepWeights int
	var maxBytes app.Size
	var remove, list bool
	var abandoned []string
	cmd := &cobra.Command{
		Use: "gc", Short: "Find the objects that nothing refers to, and delete them with --delete", Args: cobra.NoArgs,
		Long: `Gc reads every run's history (its stream, or its archive when the stream was deleted), the catalogue, the intake's queue and the manifests of all
weights and code indexes, and lists the objects of the store that none of them refers to. Crashed uploads, failed attempts and lost races leave them.
Without --delete nothing is deleted. Services may be running: gc keeps objects younger than --older-than, and checks every object
again before it deletes it. --delete also removes what killed writers left of uploads that they never finished.

When a history cannot be read whole, nothing is deleted. A store belongs to one server: gc refuses a store with objects of runs that this
server does not know, unless their archive is there. --abandon also deletes the objects that only such a run needed.

--runs-older-than deletes the streams of runs that were closed that long ago and are archived to the end, as rondo run delete does. Their
history stays in the archive, and with it all that they refer to.

--forget-older-than and --max-bytes give up the archives of closed runs whose stream is deleted: those that were closed that long ago, and the
oldest ones until the files of the others (trajectories, batches, archives) take no more than SIZE. The --keep-runs that were closed last stay.
A forgotten run cannot be shown, replayed or restored again, and its name stays taken. What another run refers to is kept, as are published
weights and packed tasks.

--weights-older-than does for all policies what rondo weights gc does for one: it deletes the files of versions that were replaced that long ago, but
for the --keep-weights newest ones of each policy and those that somebody may still need.`,
		Example: `  rondo gc
  rondo gc --list --json
  rondo gc --older-than 168h --delete
  rondo gc --runs-older-than 720h --delete
  rondo gc --forget-older-than 2160h --keep-runs 20
  rondo gc --weights-older-than 720h --keep-weights 50
  rondo gc --max-bytes 500g --keep-runs 20 --delete`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if olderThan < gc.LeastAge {
				return fmt.Errorf("--older-than %s: must be at least %s, as uploads may be on their way to the log", olderThan, gc.LeastAge)
			}
			if cmd.Flags().Changed("runs-older-than") && runsOlderThan <= 0 {
				return fmt.Errorf("--runs-older-than %s: must be positive", runsOlderThan)
			}
			forgets := cmd.Flags().Changed("forget-older-than") || maxBytes > 0
			switch {
			case cmd.Flags().Changed("forget-older-than") && forgetOlderThan <= 0:
				return fmt.Errorf("--forget-older-than %s: must be positive", forgetOlderThan)
			case keepRuns < 0 || keepRuns > 0 && !forgets:
				return fmt.Errorf("--keep-runs %d: name at least 0 runs, beside --forget-older-than or --max-bytes", keepRuns)
			}
			if cmd.Flags().Changed("weights-older-than") && (weightsOlderThan < gc.LeastAge || keepWeights < gc.LeastVersions) {
				return fmt.Errorf("--weights-older-than %s, --keep-weights %d: must be at least %s and %d", weightsOlderThan, keepWeights, gc.LeastAge, gc.LeastVersions)
			}
			p, err := plane.Connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.Close()
			r := gcReport{OlderThan: runfile.Duration(olderThan), Deletes: remove}
			if runsOlderThan > 0 {
				if r.Runs, err = gc.RetireRuns(cmd.Context(), p.Log, time.Now().Add(-runsOlderThan), remove); err != nil {
					return err
				}
			}
			var forgotten []string
			if forgets {
				keep := gc.Retention{MaxBytes: int64(maxBytes), Keep: keepRuns}
				if forgetOlderThan > 0 {
					keep.ClosedBefore = time.Now().Add(-forgetOlderThan)
				}
				if r.Forgotten, err = gc.Forget(cmd.Context(), p.Log, keep, remove); err != nil {
					return err
				}
				for _, run := range r.Forgotten {
					forgotten = append(forgotten, run.Run)
				}
			}
			if weightsOlderThan > 0 {
				now := time.Now()
				keep := gc.WeightRetention{ReplacedBefore: now.Add(-weightsOlderThan), Keep: keepWeights, Cutoff: now.Add(-olderThan)}
				if r.Weights, err = gc.CollectAllWeights(cmd.Context(), p.Log, keep, remove); err != nil {
					return err
				}
			}
			show := app.NewProgress(g)
			c := &gc.Collector{Log: p.Log, Store: p.Store, Cutoff: time.Now().Add(-olderThan), Abandoned: abandoned, Forgotten: forgotten, Progress: show.Show}
			c.Found = func(s gc.Candidate) {
				switch {
				case list && g.JSON:
					r.Objects = append(r.Objects, s)
				case list:
					show.Clear()
					fmt.Fprintf(cmd.OutOrStdout(), "%s  %d bytes  %s\n", s.Key, s.Size, s.Modified.UTC().Format(time.DateTime))
				}
			}
			r.Kinds, err = c.Run(cmd.Context(), remove)
			r.Unfinished = c.Unfinished
			show.Clear()
			if c.NotSearched != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "uploads that their writers never finished were not all found:", c.NotSearched)
			}
			if err != nil {
				return err
			}
			if g.JSON {
				return app.PrintJSON(cmd.OutOrStdout(), r)
			}
			return printGC(cmd.OutOrStdout(), r)
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&olderThan, "older-than", 24*time.Hour, "keep objects that are younger than this")
	flags.DurationVar(&runsOlderThan, "runs-older-than", 0, "also delete the streams of archived runs that were closed this long ago")
	flags.DurationVar(&forgetOlderThan, "forget-older-than", 0, "also forget archived runs that were closed this long ago")
	flags.Var(&maxBytes, "max-bytes", "also forget the oldest archived runs until the files of the others take no more")
	flags.IntVar(&keepRuns, "keep-runs", 0, "never forget this many of the runs that were closed last")
	flags.DurationVar(&weightsOlderThan, "weights-older-than", 0, "also collect versions of weights that were replaced this long ago")
	flags.IntVar(&keepWeights, "keep-weights", 20, "never collect this many of each policy's newest versions")
	flags.BoolVar(&remove, "delete", false, "delete the objects instead of only listing them")
	flags.BoolVar(&list, "list", false, "name every object")
	flags.StringSliceVar(&abandoned, "abandon", nil, "runs whose history is lost for good, and whose objects may go")
	return cmd
}

func printGC(w io.Writer, r gcReport) error {
	for _, old := range r.Runs {
		switch {
		case old.Kept != "":
			fmt.Fprintf(w, "run %s stays: %s\n", old.Run, old.Kept)
		case old.Deleted:
			fmt.Fprintf(w, "the stream of run %s is deleted; its archive stays\n", old.Run)
		default:
			fmt.Fprintf(w, "the stream of run %s could be deleted\n", old.Run)
		}
	}
	for _, run := range r.Forgotten {
		done := "could be forgotten"
		if run.Forgotten {
			done = "is forgotten"
		}
		fmt.Fprintf(w, "run %s %s: %s (closed %s, %d bytes of its own)\n", run.Run, done, run.Reason, run.Closed.UTC().Format(time.DateTime), run.Bytes)
	}
	for _, policy := range r.Weights {
		if err := books.PrintWeights(w, policy, r.Deletes); err != nil {
			return err
		}
	}
	t := app.NewColumns(w)
	fmt.Fprintln(t, "KIND\tOBJECTS\tBYTES\tUNREACHABLE\tBYTES\tTOO YOUNG\tDELETED\tBYTES\t")
	var sum gc.KindReport
	for _, k := range r.Kinds {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", k.Kind, k.Objects, k.Bytes, k.Unreachable, k.Garbage, k.Young, k.Deleted, k.Freed)
		sum.Unreachable, sum.Garbage, sum.Deleted, sum.Freed = sum.Unreachable+k.Unreachable, sum.Garbage+k.Garbage, sum.Deleted+k.Deleted, sum.Freed+k.Freed
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if r.Unfinished > 0 {
		fmt.Fprintf(w, "%d uploads removed that their writers never finished\n", r.Unfinished)
	}
	end := fmt.Sprintf("; %d of them deleted (%d bytes)", sum.Deleted, sum.Freed)
	if !r.Deletes && sum.Unreachable > 0 {
		end = "; --delete deletes them"
	} else if !r.Deletes {
		end = ""
	}
	_, err := fmt.Fprintf(w, "%d objects (%d bytes) that nothing refers to, older than %s%s\n", sum.Unreachable, sum.Garbage, time.Duration(r.OlderThan), end)
	return err
}
