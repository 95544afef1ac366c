// Package gc is the command that finds and deletes objects to which nothing refers.
package gc

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/cli/tables"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/gc"
)

// New is the command gc.
func New(g *app.Global) *cobra.Command {
	var olderThan, runsOlderThan, forgetOlderThan, weightsOlderThan time.Duration
	var keepRuns, keepWeights int
	var maxBytes app.Size
	var remove, list bool
	var abandoned []string
	var retention string
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
for the --keep-weights newest ones of each policy and those that somebody may still need.

--retention shows what a plane with that file (rondo up --retention FILE) would remove next, and with --delete removes it now.`,
		Example: `  rondo gc
  rondo gc --list --json
  rondo gc --older-than 168h --delete
  rondo gc --runs-older-than 720h --delete
  rondo gc --forget-older-than 2160h --keep-runs 20
  rondo gc --weights-older-than 720h --keep-weights 50
  rondo gc --max-bytes 500g --keep-runs 20 --delete
  rondo gc --retention retention.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if olderThan < gc.LeastAge {
				return fmt.Errorf("--older-than %s: must be at least %s, as uploads may be on their way to the log",
					olderThan, gc.LeastAge)
			}
			if cmd.Flags().Changed("runs-older-than") && runsOlderThan <= 0 {
				return fmt.Errorf("--runs-older-than %s: must be positive", runsOlderThan)
			}
			forgets := cmd.Flags().Changed("forget-older-than") || maxBytes > 0
			switch {
			case cmd.Flags().Changed("forget-older-than") && forgetOlderThan <= 0:
				return fmt.Errorf("--forget-older-than %s: must be positive", forgetOlderThan)
			case keepRuns < 0 || keepRuns > 0 && !forgets:
				return fmt.Errorf("--keep-runs %d: name at least 0 runs, beside --forget-older-than or --max-bytes",
					keepRuns)
			}
			if cmd.Flags().Changed("weights-older-than") &&
				(weightsOlderThan < gc.LeastAge || keepWeights < gc.LeastVersions) {
				return fmt.Errorf("--weights-older-than %s, --keep-weights %d: must be at least %s and %d",
					weightsOlderThan, keepWeights, gc.LeastAge, gc.LeastVersions)
			}
			p, err := plane.Connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.Close()
			policy := gc.Policy{
				Objects: runfile.Duration(olderThan), Streams: runfile.Duration(runsOlderThan),
				Archives: runfile.Duration(forgetOlderThan), MaxBytes: runfile.Size(maxBytes), KeepRuns: keepRuns,
				Weights: runfile.Duration(weightsOlderThan), KeepWeights: keepWeights,
			}
			if retention != "" {
				if policy, err = gc.ReadPolicy(retention); err != nil {
					return err
				}
			}
			var objects []gc.Candidate
			show := app.NewProgress(g)
			c := &gc.Collector{Abandoned: abandoned, Progress: show.Show}
			c.Found = func(s gc.Candidate) {
				switch {
				case list && g.JSON:
					objects = append(objects, s)
				case list:
					show.Clear()
					fmt.Fprintf(cmd.OutOrStdout(), "%s  %d bytes  %s\n", s.Key, s.Size,
						s.Modified.UTC().Format(time.DateTime))
				}
			}
			r, err := gc.Retain(cmd.Context(), p.Log, policy, c, remove)
			r.Objects = objects
			show.Clear()
			if c.NotSearched != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "uploads that their writers never finished were not all found:",
					c.NotSearched)
			}
			if err != nil {
				return err
			}
			return app.Show(cmd, g, r, func(w io.Writer) error { return printGC(w, r) })
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&olderThan, "older-than", 24*time.Hour, "keep objects that are younger than this")
	flags.DurationVar(&runsOlderThan, "runs-older-than", 0,
		"also delete the streams of archived runs that were closed this long ago")
	flags.DurationVar(&forgetOlderThan, "forget-older-than", 0,
		"also forget archived runs that were closed this long ago")
	flags.Var(&maxBytes, "max-bytes", "also forget the oldest archived runs until the files of the others take no more")
	flags.IntVar(&keepRuns, "keep-runs", 0, "never forget this many of the runs that were closed last")
	flags.DurationVar(&weightsOlderThan, "weights-older-than", 0,
		"also collect versions of weights that were replaced this long ago")
	flags.IntVar(&keepWeights, "keep-weights", 20, "never collect this many of each policy's newest versions")
	flags.StringVar(&retention, "retention", "",
		"a retention file, as `FILE` of rondo up --retention, in place of the flags above")
	flags.BoolVar(&remove, "delete", false, "delete the objects instead of only listing them")
	flags.BoolVar(&list, "list", false, "name every object")
	flags.StringSliceVar(&abandoned, "abandon", nil, "runs whose history is lost for good, and whose objects may go")
	for _, name := range []string{"older-than", "runs-older-than", "forget-older-than", "max-bytes", "keep-runs",
		"weights-older-than", "keep-weights"} {
		cmd.MarkFlagsMutuallyExclusive("retention", name)
	}
	return cmd
}

func printGC(w io.Writer, r gc.Report) error {
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
		fmt.Fprintf(w, "run %s %s: %s (closed %s, %d bytes of its own)\n", run.Run, done, run.Reason,
			run.Closed.UTC().Format(time.DateTime), run.Bytes)
	}
	for _, policy := range r.Weights {
		if err := tables.PrintWeights(w, policy, r.Deletes); err != nil {
			return err
		}
	}
	t := app.NewColumns(w)
	fmt.Fprintln(t, "KIND\tOBJECTS\tBYTES\tUNREACHABLE\tBYTES\tTOO YOUNG\tDELETED\tBYTES\t")
	var sum gc.KindReport
	for _, k := range r.Kinds {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", k.Kind, k.Objects, k.Bytes, k.Unreachable, k.Garbage,
			k.Young, k.Deleted, k.Freed)
		sum.Unreachable, sum.Garbage, sum.Deleted, sum.Freed = sum.Unreachable+k.Unreachable, sum.Garbage+k.Garbage,
			sum.Deleted+k.Deleted, sum.Freed+k.Freed
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
	_, err := fmt.Fprintf(w, "%d objects (%d bytes) that nothing refers to, older than %s%s\n", sum.Unreachable,
		sum.Garbage, time.Duration(r.OlderThan), end)
	return err
}
