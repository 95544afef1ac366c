package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runtime"
	"github.com/rondo-rl/rondo/index/merkle"
	"github.com/rondo-rl/rondo/index/update"
	"github.com/rondo-rl/rondo/storage"
)

// syncReport is what sync answers.
type syncReport struct {
	Repo string `json:"repo"`
	events.IndexState
	// Changed is false where the index was up to date.
	Changed bool    `json:"changed"`
	Seconds float64 `json:"seconds"`
	// Unknown counts what could not be looked at.
	Unknown int `json:"unknown,omitempty"`
	// Told: the plane heard of it.
	Told bool `json:"told"`
}

func newIndexSync(g *global) *cobra.Command {
	var s indexSettings
	var watch, anew bool
	var every time.Duration
	cmd := &cobra.Command{
		Use: "sync DIR", Short: "Bring the index of a folder up to date", Args: cobra.ExactArgs(1),
		Long: `Sync compares the folder with its index and takes in what is different, and only that. What .gitignore, .git/info/exclude, .rondoignore
and .cursorignore exclude, binaries, generated and over-large files stay out; so does every chunk that holds a secret. The first sync
makes the index's key: keep it, as nobody can read the index without it.

With --anew the index is made anew in the place of whatever is there, and all code is embedded again: for an index that is damaged.

Where a plane runs (rondo up), it hears of the change and tells the runs that name the repository.`,
		Example: `  rondo index sync .
  rondo index sync ~/src/shop --repo shop --watch
  rondo index sync . --store 's3://rondo?endpoint=http://127.0.0.1:7070' --nats nats://127.0.0.1:4222`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if every <= 0 {
				return fmt.Errorf("--every %s: must be positive", every)
			}
			store, err := openStore(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer store.Close()
			f, made, err := s.folder(store, args[0], true)
			if err != nil {
				return err
			}
			show := newProgress(g)
			if made != "" {
				show.line("made the key %s: keep it, nobody can read the index without it", made)
			}
			for {
				r, err := syncFolder(cmd.Context(), g, f, anew, show)
				if err != nil && (!watch || cmd.Context().Err() != nil) {
					return err
				}
				if err != nil {
					show.line("sync: %v", err)
				} else if err := printSync(cmd.OutOrStdout(), g, r, watch); err != nil {
					return err
				}
				anew = anew && err != nil
				if !watch || !runtime.Sleep(cmd.Context(), every) {
					return nil
				}
			}
		},
	}
	s.addFlags(cmd)
	cmd.Flags().BoolVar(&anew, "anew", false, "make the index anew, whatever is there")
	cmd.Flags().BoolVar(&watch, "watch", false, "go on, and look again and again")
	cmd.Flags().DurationVar(&every, "every", 3*time.Minute, "how often --watch looks")
	return cmd
}

// syncFolder brings a folder's index up to date, or makes it anew, and tells the plane, if there is one.
func syncFolder(ctx context.Context, g *global, f *update.Folder, anew bool, show *progress) (syncReport, error) {
	begin := time.Now()
	var before events.IndexState
	sync := f.Renew
	if !anew {
		base, err := f.Load(ctx)
		if errors.Is(err, storage.ErrCorrupt) {
			return syncReport{}, fmt.Errorf("%w: rondo index sync --anew makes it anew", err)
		}
		if err == nil {
			before, err = update.State(base)
		}
		if err != nil {
			return syncReport{}, err
		}
		sync = f.Sync
	}
	state, err := sync(ctx, func(p update.Progress) { show.show("%s: %d of %d files", f.Repo, p.Done, p.Files) })
	show.clear()
	var partial *merkle.PartialError
	if err != nil && !errors.As(err, &partial) {
		return syncReport{}, err
	}
	r := syncReport{Repo: f.Repo, IndexState: state, Changed: state.Generation != before.Generation, Seconds: time.Since(begin).Seconds()}
	if partial != nil {
		r.Unknown = partial.Count
		show.line("%v; the index keeps what it had of it", partial)
	}
	if r.Told, err = tellPlane(ctx, g, f.Repo, state); err != nil {
		show.line("the index is up to date, but the plane was not told: %v", err)
	}
	return r, nil
}

// tellPlane states the change at the door of the plane that the flags name, if there is one. Saying it twice changes nothing.
func tellPlane(ctx context.Context, g *global, repo string, state events.IndexState) (bool, error) {
	if g.nats == "" && !planeRuns(g.dir) {
		return false, nil
	}
	p, err := connect(ctx, g)
	if err != nil {
		return false, err
	}
	defer p.close()
	_, known, err := lastIndex(ctx, p.log, repo)
	if err != nil {
		return false, err
	}
	if known != nil && known.Space == state.Space && known.Embedder == state.Embedder && known.Generation >= state.Generation {
		return true, nil
	}
	_, err = submit(ctx, p, eventlog.Submission{
		Run: events.Catalogue, Type: events.RepoChangedType, Entity: repo, Data: events.RepoChanged{Index: &state}, ID: nats.NewInbox()[7:],
	})
	return err == nil, err
}

// lastIndex is what the catalogue says of a repository's index, nil for nothing.
func lastIndex(ctx context.Context, log *eventlog.Log, repo string) (at time.Time, updated *events.IndexUpdated, err error) {
	last, err := log.LastOfType(ctx, events.Catalogue, events.IndexUpdatedType, repo)
	if errors.Is(err, eventlog.ErrNotFound) {
		return at, nil, nil
	}
	if err != nil {
		return at, nil, err
	}
	u, err := events.Data[events.IndexUpdated](last)
	return last.Time, &u, err
}

func printSync(w io.Writer, g *global, r syncReport, quiet bool) error {
	if quiet && !r.Changed {
		return nil
	}
	if g.json {
		return printJSON(w, r)
	}
	if !r.Changed {
		_, err := fmt.Fprintf(w, "%s is up to date: %d files\n", r.Repo, r.Files)
		return err
	}
	fmt.Fprintf(w, "%s: %d files; chunks: %d embedded, %d used again, %d removed, in %.1f s\n", r.Repo, r.Files, r.Added, r.Reused, r.Removed, r.Seconds)
	for _, reason := range sortedKeys(r.Skipped) {
		fmt.Fprintf(w, "  skipped, %s: %d\n", reason, r.Skipped[reason])
	}
	for _, rule := range sortedKeys(r.Secrets) {
		fmt.Fprintf(w, "  left out, secret by %s: %d chunks\n", rule, r.Secrets[rule])
	}
	return nil
}
