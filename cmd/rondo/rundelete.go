package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

func newRunDelete(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "delete RUN", Short: "Delete the stream of a closed run whose archive is complete",
		Long: `Delete frees what the run takes on the log's server. Nothing is lost: all commands read the archive from then on, and rondo
archive restore makes the stream again. It refuses a run that is open, or whose log goes on behind its archive.`,
		Example: "  rondo archive seal demo-1\n  rondo run delete demo-1", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.close()
			if err := deleteRun(cmd.Context(), p.log, args[0]); err != nil {
				return fmt.Errorf("delete run %s: %w", args[0], err)
			}
			if g.json {
				return printJSON(cmd.OutOrStdout(), map[string]any{"run": args[0], "deleted": true})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "the stream of run %s is deleted; its archive stays\n", args[0])
			return nil
		},
	}
}

func deleteRun(ctx context.Context, log *eventlog.Log, run string) error {
	if err := deletable(ctx, log, run); err != nil {
		return err
	}
	return log.DeleteRun(ctx, run)
}

// deletable says why a run's stream must stay, nil when its archive is as good.
func deletable(ctx context.Context, log *eventlog.Log, run string) error {
	in, err := log.Incarnation(ctx, run)
	if err != nil {
		return err
	}
	state, _, err := runState(ctx, log, run)
	if err != nil {
		return err
	}
	if state != "closed" {
		return fmt.Errorf("it is %s: close it first", state)
	}
	sealed, err := log.Segments(ctx, run)
	if err != nil {
		return err
	}
	if n := len(sealed); n == 0 || sealed[n-1].Last < in.LastSeq {
		return fmt.Errorf("its log is not archived to the end: rondo archive seal %s", run)
	}
	findings, err := log.VerifyArchive(ctx, run, sealed)
	if err != nil {
		return err
	}
	if len(findings) > 0 {
		return errors.New(findings[0])
	}
	return nil
}

// allRuns lists the runs that have a stream, the archived ones that have none any more, and those of which the catalogue has a fact of
// some other types.
func allRuns(ctx context.Context, log *eventlog.Log, others ...events.Type) ([]string, error) {
	runs, err := log.Runs(ctx)
	if err != nil {
		return nil, err
	}
	for e, err := range log.All(ctx, events.Catalogue, 1) {
		if err != nil {
			return nil, err
		}
		if e.Type != events.SegmentSealedType && !slices.Contains(others, e.Type) {
			continue
		}
		if !slices.Contains(runs, e.Entity) {
			runs = append(runs, e.Entity)
		}
	}
	slices.Sort(runs)
	return runs, nil
}
