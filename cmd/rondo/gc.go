package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage"
)

// leastAge is the shortest --older-than. A writer relies on objects that are younger than storage.RefreshAfter; that much again is left
// for the fact that names them to get onto the log.
const leastAge = 2 * storage.RefreshAfter

// gcReport is what gc answers.
type gcReport struct {
	OlderThan events.Duration `json:"older_than"`
	// Deletes is false for a dry run.
	Deletes bool         `json:"deletes"`
	Kinds   []kindReport `json:"kinds"`
	Runs    []oldRun     `json:"runs,omitempty"`
	// Objects are those that nothing reaches, with --list.
	Objects []candidate `json:"objects,omitempty"`
}

// oldRun is a closed run whose stream may be deleted.
type oldRun struct {
	Run    string    `json:"run"`
	Closed time.Time `json:"closed"`
	// Kept says why its stream stays.
	Kept    string `json:"kept,omitempty"`
	Deleted bool   `json:"deleted"`
}

func newGC(g *global) *cobra.Command {
	var olderThan, runsOlderThan time.Duration
	var remove, list bool
	var abandoned []string
	cmd := &cobra.Command{
		Use: "gc", Short: "Find the objects that nothing refers to, and delete them with --delete", Args: cobra.NoArgs,
		Long: `Gc reads every run's history (its stream, or its archive when the stream was deleted), the catalogue, the door and the manifests of all
weights and code indexes, and tells which objects of the store none of them refers to: what crashed uploads, abandoned tries and lost races left behind.
Without --delete nothing is deleted. Services may be at work: what is younger than --older-than is spared, and every object is
looked at again before it goes.

When a history cannot be read whole, nothing is deleted. A store belongs to one server: gc refuses a store with objects of runs that this
server does not know, unless their archive is there. --abandon gives such a run up, and what only it needed.

--runs-older-than deletes the streams of runs that were closed that long ago and are archived to the end, as rondo run delete does. Their
history stays in the archive, and with it all that they refer to.`,
		Example: `  rondo gc
  rondo gc --list --json
  rondo gc --older-than 168h --delete
  rondo gc --runs-older-than 720h --delete`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if olderThan < leastAge {
				return fmt.Errorf("--older-than %s: must be at least %s, as uploads may be on their way to the log", olderThan, leastAge)
			}
			if cmd.Flags().Changed("runs-older-than") && runsOlderThan <= 0 {
				return fmt.Errorf("--runs-older-than %s: must be positive", runsOlderThan)
			}
			p, err := connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.close()
			r := gcReport{OlderThan: events.Duration(olderThan), Deletes: remove}
			if runsOlderThan > 0 {
				if r.Runs, err = retireRuns(cmd.Context(), p.log, time.Now().Add(-runsOlderThan), remove); err != nil {
					return err
				}
			}
			c := &collector{log: p.log, store: p.store, show: newProgress(g), cutoff: time.Now().Add(-olderThan), abandoned: abandoned}
			c.found = func(s candidate) {
				switch {
				case list && g.json:
					r.Objects = append(r.Objects, s)
				case list:
					c.show.clear()
					fmt.Fprintf(cmd.OutOrStdout(), "%s  %d bytes  %s\n", s.Key, s.Size, s.Modified.UTC().Format(time.DateTime))
				}
			}
			err = c.run(cmd.Context(), remove)
			c.show.clear()
			if err != nil {
				return err
			}
			for _, kind := range objectKinds {
				r.Kinds = append(r.Kinds, *c.kinds[kind])
			}
			if g.json {
				return printJSON(cmd.OutOrStdout(), r)
			}
			return printGC(cmd.OutOrStdout(), r)
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&olderThan, "older-than", 24*time.Hour, "spare objects that were written later than this ago")
	flags.DurationVar(&runsOlderThan, "runs-older-than", 0, "also delete the streams of archived runs that were closed this long ago")
	flags.BoolVar(&remove, "delete", false, "delete, instead of telling only")
	flags.BoolVar(&list, "list", false, "name every object")
	flags.StringSliceVar(&abandoned, "abandon", nil, "runs whose history is lost for good, and whose objects may go")
	return cmd
}

// run collects with marks of its own.
func (c *collector) run(ctx context.Context, sweep bool) (err error) {
	if c.marks, err = newMarks(); err != nil {
		return err
	}
	defer c.marks.close()
	return c.collect(ctx, sweep)
}

// retireRuns finds the closed runs whose last fact is older than a moment, and deletes the streams of those that are archived.
func retireRuns(ctx context.Context, log *eventlog.Log, before time.Time, remove bool) (old []oldRun, err error) {
	runs, err := log.Runs(ctx)
	if err != nil {
		return nil, err
	}
	slices.Sort(runs)
	for _, run := range runs {
		state, _, err := runState(ctx, log, run)
		if err != nil {
			return old, err
		}
		if state != "closed" {
			continue
		}
		closing, err := log.Last(ctx, run, events.RunClosedType.Kind(), run)
		if err != nil {
			return old, err
		}
		if !closing.Time.Before(before) {
			continue
		}
		r := oldRun{Run: run, Closed: closing.Time}
		if err := deletable(ctx, log, run); ctx.Err() != nil {
			return old, ctx.Err()
		} else if err != nil {
			r.Kept = err.Error()
		} else if remove {
			if err := log.DeleteRun(ctx, run); err != nil {
				return old, err
			}
			r.Deleted = true
		}
		old = append(old, r)
	}
	return old, nil
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
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "KIND\tOBJECTS\tBYTES\tUNREACHABLE\tBYTES\tTOO YOUNG\tDELETED\tBYTES\t")
	var sum kindReport
	for _, k := range r.Kinds {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", k.Kind, k.Objects, k.Bytes, k.Unreachable, k.Garbage, k.Young, k.Deleted, k.Freed)
		sum.Unreachable, sum.Garbage, sum.Deleted, sum.Freed = sum.Unreachable+k.Unreachable, sum.Garbage+k.Garbage, sum.Deleted+k.Deleted, sum.Freed+k.Freed
	}
	if err := t.Flush(); err != nil {
		return err
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
