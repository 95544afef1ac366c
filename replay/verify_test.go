package replay

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/storage"
)

// TestVerifyWritesNothing: objects that a writer would make young again stay as they are.
func TestVerifyWritesNothing(t *testing.T) {
	r := clitest.NewRecorded(t, clitest.Deciding...)
	r.Whole(1, "fix-a", 0, 1, 0)
	r.Batch("trainer", 1)
	r.Batch("shadow", 1)
	old := time.Now().Add(-2 * storage.RefreshAfter)
	objects := filepath.Join(r.Dir, "objects")
	each := func(do func(path string, info fs.FileInfo) error) {
		t.Helper()
		err := filepath.Walk(objects, func(path string, info fs.FileInfo, err error) error {
			if err != nil || info.IsDir() {
				return err
			}
			return do(path, info)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	each(func(path string, _ fs.FileInfo) error { return os.Chtimes(path, old, old) })
	v, err := Verify(t.Context(), r.Log.Reader, "first", func(uint64) {})
	if err != nil || v.Differences > 0 || len(v.Checked) == 0 {
		t.Fatalf("%+v, %v", v, err)
	}
	each(func(path string, info fs.FileInfo) error {
		if filepath.Base(path) != "alive" && info.ModTime().After(old.Add(time.Minute)) {
			t.Errorf("%s was written", path)
		}
		return nil
	})
}
