package gc

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/parts"
)

// TestPartsOfALargeChangeAreKept: an event names an index, and the index names the parts. An index that nothing names is garbage with its parts.
func TestPartsOfALargeChangeAreKept(t *testing.T) {
	r := clitest.NewRecorded(t)
	store := r.Log.Store()
	write := func(seed byte) (storage.Ref, *parts.Index) {
		data := make([]byte, 3<<20)
		_, _ = rand.NewChaCha8([32]byte{seed}).Read(data)
		w := parts.NewWriter(t.Context(), store, nil)
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
		ref, index, err := w.Close()
		if err != nil {
			t.Fatal(err)
		}
		return ref, index
	}
	named, kept := write(1)
	unnamed, gone := write(2)
	damaged := storage.Ref{Key: "blobs/parts/00/" + named.SHA256, SHA256: named.SHA256, Size: named.Size} // it is not there, and stops nothing
	r.State(events.RolloutFinishedType, "g000001-0", "0", events.RolloutFinished{Trajectory: servicetest.Blob(t, store, []byte("t")), Workspace: &named})
	r.State(events.RolloutFinishedType, "g000001-1", "0", events.RolloutFinished{Trajectory: servicetest.Blob(t, store, []byte("t")), Workspace: &damaged})
	before := time.Now().Add(-48 * time.Hour)
	for info, err := range store.List(t.Context(), "blobs/") {
		if err == nil {
			err = os.Chtimes(filepath.Join(r.Dir, "objects", info.Key), before, before)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c := &Collector{Log: r.Log, Store: store, Cutoff: time.Now().Add(-time.Hour)}
	if _, err := c.Run(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{named.Key: true, unnamed.Key: false}
	for _, p := range kept.Parts {
		there[p.Key] = true
	}
	for _, p := range gone.Parts {
		there[p.Key] = false
	}
	for key, want := range there {
		if _, err := store.Stat(t.Context(), key); errors.Is(err, storage.ErrNotFound) == want {
			t.Errorf("%s: want it there %t; %v", key, want, err)
		}
	}
}
