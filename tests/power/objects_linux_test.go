package power

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/tests/power/forgetful"
	"github.com/rondo-rl/rondo/tests/program"
)

// TestObjectsAreCut: an object that a store says it holds, and a fact may name, is
// there after a power cut.
func TestObjectsAreCut(t *testing.T) {
	t.Parallel()
	data := []byte("what a fact names")
	for name, put := range map[string]func(context.Context, *dir.Store, string) error{
		"stored": func(ctx context.Context, s *dir.Store, _ string) error {
			_, err := storage.PutBlob(ctx, s, data)
			return err
		},
		"there already, of a writer that was killed before it synced the name": func(ctx context.Context,
			s *dir.Store, path string) error {
			place := filepath.Join(path, storage.BlobKey(storage.Digest(data)))
			if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
				return err
			}
			f, err := os.Create(place)
			if err != nil {
				return err
			}
			_, err = f.Write(data)
			if err = errors.Join(err, f.Sync(), f.Close(), os.Rename(place, place+"x"),
				os.Rename(place+"x", place)); err != nil {
				return err
			}
			_, err = storage.PutBlob(ctx, s, data)
			return err
		},
		"in a folder that was made before": func(ctx context.Context, s *dir.Store, path string) error {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(path, storage.BlobKey(storage.Digest(data)))),
				0o755); err != nil {
				return err
			}
			_, err := storage.PutBlob(ctx, s, data)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			mount, disk := t.TempDir(), forgetful.NewDisk()
			unmount, err := forgetful.Mount(disk, mount)
			if err != nil {
				program.Missing(t, "%v", err)
			}
			path := filepath.Join(mount, "some", "where", "objects")
			s, err := dir.Open(path)
			if err == nil {
				err = errors.Join(put(t.Context(), s, path), s.Close())
			}
			if err = errors.Join(err, unmount()); err != nil {
				t.Fatal(err)
			}
			left, _ := disk.Cut(nil).ReadFile(filepath.Join("some/where/objects",
				storage.BlobKey(storage.Digest(data))))
			if string(left) != string(data) {
				t.Errorf("the object is %q after the cut", left)
			}
		})
	}
}
