package index

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/indexing"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/index/update"
	"github.com/rondo-rl/rondo/storage"
)

func newIndexForget(g *app.Global) *cobra.Command {
	var s indexing.IndexSettings
	cmd := &cobra.Command{
		Use: "forget DIR|REPO", Short: "Delete an index", Args: cobra.ExactArgs(1),
		Long: `Forget removes the index of a folder, or of the repository of that name, from the store, even when the index is damaged. rondo gc deletes
its objects when nothing has used them for 30 days. Until then a folder whose tree did not change still finds them, and so do the runs that
recorded the index. The key is kept.`,
		Example: `  rondo index forget .
  rondo index forget shop`,
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := args[0]
			if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) && s.Repo == "" && runfile.ValidToken(dir) {
				s.Repo, dir = dir, "." // only its name counts then
			}
			return s.Existing(cmd.Context(), g, dir, func(f *update.Folder) error {
				base, err := f.Load(cmd.Context())
				if err == nil && base.Root() == "" {
					return fmt.Errorf("there is no index of %s under this key and embedder", f.Repo)
				}
				if err != nil && !errors.Is(err, storage.ErrCorrupt) {
					return err
				}
				if err := f.Forget(cmd.Context()); err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "the index of %s is forgotten; its key is still %s\n", f.Repo,
					s.KeyFile(f.Repo))
				return err
			})
		},
	}
	s.AddFlags(cmd)
	return cmd
}
