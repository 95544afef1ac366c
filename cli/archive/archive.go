// Package archive has the commands that seal, verify and restore the log of a run.
package archive

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/recovery"
)

// New makes the command `rondo archive`.
func New(g *app.Global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "Seal, verify and restore a run's log as Arrow files in the store",
		Long: `The archiver seals a run's log into Arrow segments under runs/RUN/log/, each naming the digest of the one before it. What
reads history (audit, replay, diff, run show, trajectories) reads the archive when the run's stream is gone.`,
	}
	cmd.AddCommand(newArchiveSeal(g), newArchiveVerify(g), newArchiveRestore(g))
	return cmd
}

// archiveReport is what the archive commands answer.
type archiveReport struct {
	Run      string                 `json:"run"`
	Segments []events.SegmentSealed `json:"segments"`
	Events   uint64                 `json:"events"`
	Bytes    int64                  `json:"bytes"`
	// ObjectsFound are what verify read beside the segments.
	*recovery.ObjectsFound
	// Findings are what verify found to be broken.
	Findings []string `json:"findings,omitempty"`
}

func report(run string, sealed []events.SegmentSealed) archiveReport {
	r := archiveReport{Run: run, Segments: sealed}
	for _, s := range sealed {
		r.Events += s.Last - s.First + 1
		r.Bytes += s.Segment.Size
	}
	return r
}

func printArchive(w io.Writer, g *app.Global, r archiveReport, done string) error {
	if g.JSON {
		return app.PrintJSON(w, r)
	}
	for _, f := range r.Findings {
		fmt.Fprintln(w, f)
	}
	_, err := fmt.Fprintf(w, "run %s: %d events in %d segments of %d bytes %s\n", r.Run, r.Events,
		len(r.Segments), r.Bytes, done)
	return err
}

func newArchiveSeal(g *app.Global) *cobra.Command {
	return &cobra.Command{
		Use: "seal RUN", Short: "Archive the run's log up to now", Args: cobra.ExactArgs(1),
		Long: `Seal archives the run's log as it is. A running plane's archiver does that by itself: at the
intervals of the run file (log.archive_every), whenever a segment is full, and when a run is closed.`,
		Example: "  rondo archive seal demo-1",
		RunE: plane.RunCommand(g, func(cmd *cobra.Command, args []string, p *plane.Plane) error {
			if _, err := p.Log.Incarnation(cmd.Context(), args[0]); err != nil {
				return fmt.Errorf("seal: %w", err)
			}
			made, err := p.Log.Appender.Seal(cmd.Context(), args[0], true)
			if err != nil {
				return err
			}
			return printArchive(cmd.OutOrStdout(), g, report(args[0], made), "were sealed")
		}),
	}
}

func newArchiveVerify(g *app.Global) *cobra.Command {
	return &cobra.Command{
		Use: "verify RUN", Short: "Read a run's archive again, and check it against its digests and the log",
		Args: cobra.ExactArgs(1),
		Long: `Verify reads every segment, and checks its digest, that they follow each other without gaps, and, where the run's stream is
there, that both hold the same events. Then it reads every object that the archived events refer to (large bodies,
trajectories, batches, workspaces, logs, tasks, weights), each once, and checks its digest. It names what is broken, with the
event that refers to it, and exits with 2.`,
		Example: "  rondo archive verify demo-1\n  rondo archive verify demo-1 --json",
		RunE: plane.Command(g, func(cmd *cobra.Command, args []string, p *plane.Plane) error {
			r, err := verifyArchive(cmd.Context(), g, p.Log, args[0])
			if err != nil {
				return err
			}
			done := fmt.Sprintf("and %d objects of %d bytes were read", r.Count, r.ObjectsFound.Bytes)
			if err := printArchive(cmd.OutOrStdout(), g, r, done); err != nil || len(r.Findings) == 0 {
				return err
			}
			return &app.ExitError{Code: app.ExitFindings,
				Err: fmt.Errorf("archive of %s: %d findings", args[0], len(r.Findings))}
		}),
	}
}

func verifyArchive(ctx context.Context, g *app.Global, log *eventlog.Log, run string) (archiveReport, error) {
	sealed, err := plane.Segments(ctx, log, run)
	if err != nil {
		return archiveReport{}, err
	}
	r, show := report(run, sealed), app.NewProgress(g)
	if r.Findings, err = log.Archive.Verify(ctx, run, sealed); err != nil {
		return r, err
	}
	objects, err := recovery.VerifyObjects(ctx, log.Store(), run, sealed,
		func(seq uint64) { show.Line("sequence %d of %d", seq, r.Events) })
	r.Findings, r.ObjectsFound = append(r.Findings, objects.Findings...), &objects
	return r, err
}

func newArchiveRestore(g *app.Global) *cobra.Command {
	return &cobra.Command{
		Use: "restore RUN", Short: "Restore a run's stream from its archive", Args: cobra.ExactArgs(1),
		Long: `Restore makes the stream of an archived run again, each event at its sequence, so that every chain is intact. The server may
be an empty one: then the segments are found in the store. It refuses a run whose stream is as long as its archive, and names the
first sequence at which a stream that is there differs from the archive.

Services may run meanwhile. The stream is hidden until it is whole: nobody appends to it or reads it before. On a plane whose
services run, restore waits until no service decides in the run any more, up to a minute. When it is interrupted, repeat it.

A catalogue that was lost learns the version that the store has of the run's policy, also where that was published behind the last
segment: inference servers may have it already.`,
		Example: "  rondo archive restore demo-1\n  rondo archive restore demo-1 --nats nats://10.0.0.9:4222 --store /srv/rondo/objects",
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := plane.ConnectRestoring(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.Close()
			sealed, err := plane.Segments(cmd.Context(), p.Log, args[0])
			if err != nil {
				return err
			}
			if _, err := recovery.Restore(cmd.Context(), p.Log, args[0], sealed, p.AwaitNoDecider); err != nil {
				return err
			}
			if err := plane.ListStored(cmd.Context(), p.Log, args[0]); err != nil {
				return err
			}
			return printArchive(cmd.OutOrStdout(), g, report(args[0], sealed), "restored to the log")
		},
	}
}
