// Package objects has the command that prints what the store holds.
package objects

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/storage"
)

// NewCat makes the command `rondo cat`.
func NewCat(g *app.Global) *cobra.Command {
	return &cobra.Command{
		Use: "cat REF", Short: "Print an object of the store: what events name by ref", Args: cobra.ExactArgs(1),
		Long: `Cat prints an object of the store as it is: a verifier's log, a tool's output, a snapshot, an Arrow file. REF is the ref in an
event, as "rondo events tail --json" shows it. A blob is checked against the digest in
its name. Control characters are made visible on a terminal. An object that holds other bytes than text belongs in a file.`,
		Example: `  rondo cat blobs/sha256/0f/0f3c… > snapshot.tar
  rondo cat "$(rondo events tail demo-1 --entity g000001-0 --type rollout.scored --json | jq -r .data.log.ref)"`,
		RunE: plane.Reading(g, func(cmd *cobra.Command, args []string, p *plane.Plane) error {
			return write(cmd.Context(), app.CleanOnTerminal(cmd.OutOrStdout()), p.Store, args[0])
		}),
	}
}

// write copies an object, of any size.
func write(ctx context.Context, w io.Writer, store storage.Store, key string) error {
	if err := storage.ValidateKey(key); err != nil {
		return err
	}
	info, err := store.Stat(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return fmt.Errorf("the store has no object %s: it was deleted, or the plane is another one", key)
	}
	if err != nil {
		return err
	}
	if digest := path.Base(key); len(digest) == hex.EncodedLen(32) && key == storage.BlobKey(digest) {
		_, err = storage.CopyBlob(ctx, w, store, storage.Ref{Key: key, SHA256: digest, Size: info.Size})
		return err
	}
	object, err := store.Open(ctx, key)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, io.NewSectionReader(object, 0, info.Size))
	return errors.Join(err, object.Close())
}
