package gc

import (
	"math/rand/v2"
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/parts"
)

// large stores something in parts, and notes whether its index and they are to be kept.
func large(t *testing.T, store storage.Store, seed byte, kept bool, there map[string]bool) storage.Ref {
	t.Helper()
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
	there[ref.Key] = kept
	for _, p := range index.Parts {
		there[p.Key] = kept
	}
	return ref
}

// TestPartsOfALargeChangeAreKept: an event names an index, and the index names the parts. An index
// that nothing names is garbage with its parts.
func TestPartsOfALargeChangeAreKept(t *testing.T) {
	r := clitest.NewRecorded(t)
	store, there := r.Log.Store(), map[string]bool{}
	named := large(t, store, 1, true, there)
	large(t, store, 2, false, there)
	// it is not there, and stops nothing
	damaged := storage.Ref{Key: "blobs/parts/00/" + named.SHA256, SHA256: named.SHA256, Size: named.Size}
	for i, workspace := range []*storage.Ref{&named, &damaged} {
		r.State(events.RolloutFinishedType, events.RolloutID(events.GroupID(1), i), "0",
			events.RolloutFinished{Trajectory: servicetest.Blob(t, store, []byte("t")), Workspace: workspace})
	}
	collect(t, r, &Collector{}, there)
}

// TestImagesAreKept: the turn whose prompt shows an image names it.
func TestImagesAreKept(t *testing.T) {
	r := clitest.NewRecorded(t)
	store := r.Log.Store()
	shown, other := servicetest.Blob(t, store, []byte("shown")), servicetest.Blob(t, store, []byte("other"))
	image := storage.Image{Ref: shown, MediaType: "image/png", Width: 3, Height: 2}
	r.State(events.TurnSampledType, "x1-0", "0", events.TurnSampled{TokenIDs: []int32{1},
		Prompt: []events.PromptMessage{{Role: "user", Content: image.Name(), Images: []storage.Image{image}}}})
	collect(t, r, &Collector{}, map[string]bool{shown.Key: true, other.Key: false})
}
