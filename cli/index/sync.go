package index

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/indexing"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/index"
	"github.com/rondo-rl/rondo/index/merkle"
	"github.com/rondo-rl/rondo/index/update"
	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/storage"
)

// syncReport is what sync answers.
type syncReport struct {
	Repo string `json:"repo"`
	index.State
	// Changed is false where the index was up to date.
	Changed bool    `json:"changed"`
	Seconds float64 `json:"seconds"`
	// Unknown counts what could not be looked at.
	Unknown int `json:"unknown,omitempty"`
	// Told: the plane heard of it.
	Told bool `json:"told"`
}

func newIndexSync(g *app.Global) *cobra.Command {
	var s indexing.IndexSettings
	var watch, anew bool
	var every time.Duration
	cmd := &cobra.Command{
		Use: "sync DIR", Short: "Bring the index of a folder up to date", Args: cobra.ExactArgs(1),
		Long: `Sync compares the folder with its index and updates only what differs. It skips files that .gitignore, .git/info/exclude, .rondoignore
or .cursorignore exclude, binaries, generated and over-large files, and every chunk that holds a secret. The first sync
creates the index's key: keep it, because nobody can read the index without it.

--anew rebuilds the index and embeds all code again: use it when the index is damaged.

When a plane runs (rondo up), sync submits the change to it, and the plane informs the runs that name the repository.`,
		Example: `  rondo index sync .
  rondo index sync ~/src/shop --repo shop --watch
  rondo index sync . --store 's3://rondo?endpoint=http://127.0.0.1:7070' --nats nats://127.0.0.1:4222`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if every <= 0 {
				return fmt.Errorf("--every %s: must be positive", every)
			}
			store, err := indexing.OpenStore(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer store.Close()
			f, made, err := s.Folder(store, args[0], true)
			if err != nil {
				return err
			}
			show := app.NewProgress(g)
			if made != "" {
				show.Line("made the key %s: keep it, nobody can read the index without it", made)
			}
			g.Follows = watch
			for {
				r, err := syncFolder(cmd.Context(), g, f, anew, show)
				if err != nil && (!watch || cmd.Context().Err() != nil) {
					return err
				}
				if err != nil {
					show.Line("sync: %v", err)
				} else if err := printSync(cmd.OutOrStdout(), g, r, watch); err != nil {
					return err
				}
				anew = anew && err != nil
				if !watch || !retry.Sleep(cmd.Context(), every) {
					return nil
				}
			}
		},
	}
	s.AddFlags(cmd)
	cmd.Flags().BoolVar(&anew, "anew", false, "rebuild the index from the beginning")
	cmd.Flags().BoolVar(&watch, "watch", false, "keep running, and sync again at each interval")
	cmd.Flags().DurationVar(&every, "every", 3*time.Minute, "interval of --watch")
	return cmd
}

// syncFolder brings a folder's index up to date, or makes it anew, and tells
// the plane, if there is one.
func syncFolder(ctx context.Context, g *app.Global, f *update.Folder, anew bool,
	show *app.Progress) (syncReport, error) {
	begin := time.Now()
	var before index.State
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
	state, err := sync(ctx, func(p update.Progress) { show.Show("%s: %d of %d files", f.Repo, p.Done, p.Files) })
	show.Clear()
	var partial *merkle.PartialError
	if err != nil && !errors.As(err, &partial) {
		return syncReport{}, err
	}
	r := syncReport{Repo: f.Repo, State: state, Changed: state.Generation != before.Generation,
		Seconds: time.Since(begin).Seconds()}
	if partial != nil {
		r.Unknown = partial.Count
		show.Line("%v; the index keeps what it had of it", partial)
	}
	if r.Told, err = tellPlane(ctx, g, f.Repo, state); err != nil {
		show.Line("the index is up to date, but the plane was not told: %v", err)
	}
	return r, nil
}

// tellPlane submits the change to the plane that the flags name, if there is one. Saying
// it twice changes nothing.
func tellPlane(ctx context.Context, g *app.Global, repo string, state index.State) (bool, error) {
	if g.NATS == "" && !plane.PlaneRuns(g.Dir) {
		return false, nil
	}
	p, err := plane.Connect(ctx, g)
	if err != nil {
		return false, err
	}
	defer p.Close()
	_, known, err := lastIndex(ctx, p.Log, repo)
	if err != nil {
		return false, err
	}
	if known != nil && known.Space == state.Space && known.Embedder == state.Embedder &&
		known.Generation >= state.Generation {
		return true, nil
	}
	_, err = plane.Submit(ctx, p, eventlog.Submission{
		Run: events.Catalogue, Type: events.RepoChangedType, Entity: repo, Data: events.RepoChanged{Index: &state},
		ID: nats.NewInbox()[7:],
	})
	return err == nil, err
}

// lastIndex is what the catalogue says of a repository's index, nil for nothing.
func lastIndex(ctx context.Context, log *eventlog.Log,
	repo string) (at time.Time, updated *events.IndexUpdated, err error) {
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

func printSync(w io.Writer, g *app.Global, r syncReport, quiet bool) error {
	if quiet && !r.Changed {
		return nil
	}
	if g.JSON {
		return app.PrintJSON(w, r)
	}
	if !r.Changed {
		_, err := fmt.Fprintf(w, "%s is up to date: %d files\n", r.Repo, r.Files)
		return err
	}
	fmt.Fprintf(w, "%s: %d files; chunks: %d embedded, %d used again, %d removed, in %.1f s\n", r.Repo, r.Files,
		r.Added, r.Reused, r.Removed, r.Seconds)
	for _, reason := range app.SortedKeys(r.Skipped) {
		fmt.Fprintf(w, "  skipped, %s: %d\n", reason, r.Skipped[reason])
	}
	for _, rule := range app.SortedKeys(r.Secrets) {
		fmt.Fprintf(w, "  left out, secret by %s: %d chunks\n", rule, r.Secrets[rule])
	}
	return nil
}
