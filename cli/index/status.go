package index

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/indexing"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/index"
	"github.com/rondo-rl/rondo/index/segment"
	"github.com/rondo-rl/rondo/index/update"
)

// folderStatus is what status says of one folder.
type folderStatus struct {
	Repo string `json:"repo"`
	// Indexed is false where there is no index under the key.
	Indexed bool `json:"indexed"`
	Stale   bool `json:"stale"`
	index.State
	Store   segment.Counts `json:"store"`
	Updated time.Time      `json:"updated,omitzero"`
}

// repoStatus is what the plane's catalogue says of a repository.
type repoStatus struct {
	events.IndexUpdated
	Updated time.Time `json:"updated"`
}

func newIndexStatus(g *app.Global) *cobra.Command {
	var s indexing.IndexSettings
	cmd := &cobra.Command{
		Use: "status [DIR]", Short: "Show the state of an index, or list the indexes of the plane",
		Args: cobra.MaximumNArgs(1),
		Example: `  rondo index status .
  rondo index status --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return listIndexes(cmd.Context(), g, cmd.OutOrStdout())
			}
			return s.Existing(cmd.Context(), g, args[0], func(f *update.Folder) error {
				status, err := statusOf(cmd.Context(), f)
				if err != nil {
					return err
				}
				return app.Show(cmd, g, status, func(w io.Writer) error { return printStatus(w, args[0], status) })
			})
		},
	}
	s.AddFlags(cmd)
	return cmd
}

func statusOf(ctx context.Context, f *update.Folder) (folderStatus, error) {
	view, err := f.Current(ctx)
	if err != nil {
		return folderStatus{}, err
	}
	r := folderStatus{Repo: f.Repo, Indexed: view.Root() != "", Stale: view.Stale,
		Store: view.Counts(), Updated: view.Time()}
	r.State, err = update.State(view.Base)
	return r, err
}

func printStatus(w io.Writer, dir string, r folderStatus) error {
	if !r.Indexed {
		_, err := fmt.Fprintf(w, "%s has no index under this key: rondo index sync %s\n", r.Repo, dir)
		return err
	}
	fresh := "up to date"
	if r.Stale {
		fresh = "stale: rondo index sync " + dir
	}
	fmt.Fprintf(w, "%s: %s\n  root %s, by %s, %s\n", r.Repo, fresh, r.Root, r.Embedder,
		r.Updated.Local().Format(time.DateTime))
	_, err := fmt.Fprintf(w, "  %d files, %d chunks in %d segments, %d bytes (%d dead chunks)\n", r.Store.Files,
		r.Store.Chunks, r.Store.Segments, r.Store.Bytes, r.Store.Dead)
	return err
}

// listIndexes lists the last update of every repository.
func listIndexes(ctx context.Context, g *app.Global, w io.Writer) error {
	p, err := plane.Connect(ctx, g)
	if err != nil {
		return err
	}
	defer p.Close()
	last := map[string]repoStatus{}
	for e, err := range p.Log.All(ctx, events.Catalogue, 1) {
		if err != nil {
			return err
		}
		if e.Type != events.IndexUpdatedType {
			continue
		}
		updated, err := events.Data[events.IndexUpdated](e)
		if err != nil {
			return err
		}
		last[updated.Repo] = repoStatus{updated, e.Time}
	}
	list := []repoStatus{}
	for _, name := range app.SortedKeys(last) {
		list = append(list, last[name])
	}
	if g.JSON {
		return app.PrintJSON(w, list)
	}
	t := app.NewColumns(w)
	fmt.Fprintln(t, "REPOSITORY\tROOT\tFILES\tCHUNKS\tEMBEDDER\tUPDATED")
	for _, r := range list {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\t%s\n", r.Repo, r.Root, r.Files, r.Chunks, r.Embedder,
			r.Updated.Local().Format(time.DateTime))
	}
	return t.Flush()
}
