package segment

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/storage"
)

// Complete checks, without any key, that the manifest of a tree and all that it names are in the
// store: storage.ErrNotFound or storage.ErrCorrupt where they are not.
func Complete(ctx context.Context, store storage.Store, space, root string) error {
	data, _, err := store.Load(ctx, rootKey(space, root))
	if err != nil {
		return fmt.Errorf("the index of root %s: %w", root, err)
	}
	r, _, err := decodeClear(data)
	if err == nil && r.root != root {
		err = fmt.Errorf("%w: it is the one of root %s", storage.ErrCorrupt, r.root)
	}
	if err != nil {
		return fmt.Errorf("the index of root %s: %w", root, err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for _, digest := range r.digests {
		group.Go(func() error {
			if _, err := store.Stat(ctx, segmentKey(space, digest)); err != nil {
				return fmt.Errorf("a segment of the index of root %s: %w", root, err)
			}
			return nil
		})
	}
	return group.Wait()
}
