package storage_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
)

func TestPutNamed(t *testing.T) {
	s, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	data := []byte("content")
	digest := storage.Digest(data)
	for _, extension := range []string{"arrow", ".arrow"} {
		ref, err := storage.PutNamed(t.Context(), s, "runs/r/trajectories/g000001-2", extension, data)
		want := storage.Ref{Key: "runs/r/trajectories/g000001-2-" + digest[:16] + ".arrow", SHA256: digest, Size: 7}
		if err != nil || ref != want {
			t.Errorf("%s: %+v, %v; want %+v", extension, ref, err, want)
		}
	}
	if _, err := storage.PutNamed(t.Context(), s, "../up", "arrow", data); !errors.Is(err, storage.ErrKey) {
		t.Errorf("a prefix that leads out: %v", err)
	}
}

// TestMalformedRefs: a Ref in an event from outside is refused by an error that says that trying again is of no use.
func TestMalformedRefs(t *testing.T) {
	good := storage.Ref{Key: "a/b", SHA256: strings.Repeat("ab", 32), Size: 1}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(*storage.Ref)
		want   error
	}{
		"key":            {func(r *storage.Ref) { r.Key = "../a" }, storage.ErrKey},
		"no key":         {func(r *storage.Ref) { r.Key = "" }, storage.ErrKey},
		"no digest":      {func(r *storage.Ref) { r.SHA256 = "" }, storage.ErrCorrupt},
		"short digest":   {func(r *storage.Ref) { r.SHA256 = "abcd" }, storage.ErrCorrupt},
		"capital digits": {func(r *storage.Ref) { r.SHA256 = strings.Repeat("AB", 32) }, storage.ErrCorrupt},
		"no digits":      {func(r *storage.Ref) { r.SHA256 = strings.Repeat("xy", 32) }, storage.ErrCorrupt},
		"negative size":  {func(r *storage.Ref) { r.Size = -1 }, storage.ErrCorrupt},
		"large size":     {func(r *storage.Ref) { r.Size = storage.MaxObject + 1 }, storage.ErrCorrupt},
	} {
		ref := good
		test.change(&ref)
		if err := ref.Validate(); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}
