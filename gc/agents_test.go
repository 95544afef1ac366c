package gc

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/rondo-rl/rondo/agents"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/storage"
)

// TestLayersOfAgentsAreKept: a layer that is listed keeps its manifest, its tar and the parts of
// that. What a removed one alone held is garbage.
func TestLayersOfAgentsAreKept(t *testing.T) {
	r := clitest.NewRecorded(t)
	store := r.Log.Store()
	there := map[string]bool{}
	for seed, kept := range map[byte]bool{1: true, 2: false} {
		tree := large(t, store, seed, kept, there)
		text, err := json.Marshal(agents.Layer{Version: 1, Profile: agents.Profile{Name: "mine"}, Tree: tree})
		if err != nil {
			t.Fatal(err)
		}
		manifest := func(digest string) string { return agents.Prefix + digest + ".json" }
		ref, err := storage.PutKeyedFrom(t.Context(), store, manifest, bytes.NewReader(text), int64(len(text)))
		if err != nil {
			t.Fatal(err)
		}
		there[ref.Key] = kept
		if !kept {
			if err := agents.Remove(t.Context(), store, ref.SHA256); err != nil {
				t.Fatal(err)
			}
		}
	}
	collect(t, r, &Collector{}, there)
}
