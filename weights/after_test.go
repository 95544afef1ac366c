package weights_test

import (
	"bytes"
	"context"
	"errors"
	"path"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
)

// closed is a store that refuses to say whether a version has a delta, as S3 does where it has none
// and the reader may not list.
type closed struct{ storage.Store }

func (c closed) Load(ctx context.Context, key string) ([]byte, string, error) {
	if path.Base(key) == "delta.json" {
		return nil, "", errors.New("access denied")
	}
	return c.Store.Load(ctx, key)
}

// TestFetchAfter: who holds the version before reads a version's delta and no file of tensors; who
// holds another one, or finds a delta that is wrong, reads the files.
func TestFetchAfter(t *testing.T) {
	s := store(t)
	fetch := func(version int64, before *weights.HeldVersion) *weights.HeldVersion {
		t.Helper()
		held, err := weights.FetchAfter(t.Context(), s, "repair", version, before)
		if err != nil {
			t.Fatal(err)
		}
		if want := trained(t, int(version)-1); !slices.EqualFunc(held.Files, want,
			func(a, b weights.Content) bool { return a.Name == b.Name && bytes.Equal(a.Data, b.Data) }) {
			t.Fatalf("version %d has other files", version)
		}
		return held
	}
	var published [4]*weights.Published
	for i := range 3 {
		published[i+1] = publishTrained(t, s, int64(i+1), trained(t, i))
	}
	first := fetch(1, nil)
	if first.ByDelta || fetch(3, first).ByDelta {
		t.Error("a version came by a delta from one that is not held")
	}
	model := published[2].Manifest.Files[0].Key
	content, err := s.Get(t.Context(), model)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), model); err != nil {
		t.Fatal(err)
	}
	second := fetch(2, first) // the file cannot be read
	if !second.ByDelta || !fetch(3, second).ByDelta {
		t.Error("a version did not come by its delta")
	}
	d, err := s.Get(t.Context(), published[2].Delta.Key)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(d)
	flipped[len(flipped)/2] ^= 1
	for name, damaged := range map[string][]byte{"cut": d[:len(d)/2], "flipped": flipped, "empty": {}} {
		if err := s.Put(t.Context(), published[2].Delta.Key, damaged); err != nil {
			t.Fatal(err)
		}
		if _, err := weights.FetchAfter(t.Context(), s, "repair", 2, first); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("%s, and no file: %v", name, err)
		}
	}
	if err := s.Put(t.Context(), model, content); err != nil {
		t.Fatal(err)
	}
	if fetch(2, first).ByDelta {
		t.Error("a version came by a damaged delta")
	}
	shut := closed{s}
	if held, err := weights.FetchAfter(t.Context(), shut, "repair", 2, first); err != nil || held.ByDelta {
		t.Errorf("a store that refuses to say whether there is a delta: %v", err)
	}
	wrong := &weights.HeldVersion{Manifest: first.Manifest, Files: trained(t, 5)}
	if fetch(2, wrong).ByDelta || fetch(3, &weights.HeldVersion{Manifest: second.Manifest,
		Files: trained(t, 5)}).ByDelta {
		t.Error("a version came by a delta from other files")
	}
}
