package feed

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/storage"
)

// writeRaw writes files as they are, each synced: what nothing can beat that loses nothing.
func writeRaw(ctx context.Context, folder string, files [][]byte) error {
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	work, _ := errgroup.WithContext(ctx)
	work.SetLimit(workers)
	for i, data := range files {
		work.Go(func() error {
			file, err := os.Create(filepath.Join(folder, strconv.Itoa(i)))
			if err != nil {
				return err
			}
			_, err = file.Write(data)
			return errors.Join(err, file.Sync(), file.Close())
		})
	}
	return work.Wait()
}

// readRaw reads objects as they are, one after the other.
func readRaw(root string, files []storage.Ref) error {
	for _, f := range files {
		if _, err := os.ReadFile(filepath.Join(root, f.Key)); err != nil {
			return err
		}
	}
	return nil
}
