package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/index/update"
	"github.com/rondo-rl/rondo/storage"
)

func newIndexForget(g *global) *cobra.Command {
	var s indexSettings
	cmd := &cobra.Command{
		Use: "forget DIR|REPO", Short: "Take an index away", Args: cobra.ExactArgs(1),
		Long: `Forget takes the index of a folder, or of the repository of that name, from the store, also where it is damaged, and rondo gc collects
what it consists of when nothing has used it for 30 days: until then a folder whose tree is still that of the index finds it, as runs do that were
told of it. The key stays where it is.`,
		Example: `  rondo index forget .
  rondo index forget shop`,
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := args[0]
			if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) && s.repo == "" && events.ValidToken(dir) {
				s.repo, dir = dir, "." // only its name counts then
			}
			return s.existing(cmd.Context(), g, dir, func(f *update.Folder) error {
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
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "the index of %s is forgotten; its key is still %s\n", f.Repo, s.keyFile(f.Repo))
				return err
			})
		},
	}
	s.addFlags(cmd)
	return cmd
}

// keyFile is where the key of a repository is.
func (s indexSettings) keyFile(repo string) string {
	if s.key != "" {
		return s.key
	}
	return filepath.Join(configFolder(), repo+".key")
}
