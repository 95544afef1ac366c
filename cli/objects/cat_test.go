package objects

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage"
)

// TestCat prints what refs name, and nothing that is not what they name.
func TestCat(t *testing.T) {
	var blob, broken, named storage.Ref
	dir := clitest.FilledPlane(t, func(log *eventlog.Log) {
		put := func(ref storage.Ref, err error) storage.Ref {
			if err != nil {
				t.Fatal(err)
			}
			return ref
		}
		blob = put(storage.PutBlob(t.Context(), log.Store(), []byte("two tests\nfailed\x1b[2J\n")))
		broken = put(storage.PutBlob(t.Context(), log.Store(), []byte("right")))
		named = put(storage.PutPacked(t.Context(), log.Store(), "runs/r/trajectories/g000001-0",
			"arrow", []byte("\xff\x00arrow")))
		if err := log.Store().Put(t.Context(), broken.Key, []byte("wrong")); err != nil {
			t.Fatal(err)
		}
	})
	for ref, want := range map[string]string{blob.Key: "two tests\nfailed\x1b[2J\n", named.Key: "\xff\x00arrow"} {
		if out, err := clitest.Run(t, NewCat, "cat", ref, "--dir", dir); err != nil || out != want {
			t.Errorf("%s: %q, %v", ref, out, err)
		}
	}
	for ref, want := range map[string]string{
		broken.Key:                               "corrupt",
		storage.BlobKey(strings.Repeat("0", 64)): "has no object",
		"../secret":                              "key",
		"":                                       "key",
	} {
		if _, err := clitest.Run(t, NewCat, "cat", ref, "--dir", dir); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", ref, err, want)
		}
	}
}
