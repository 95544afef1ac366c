package storage_test

import (
	"context"
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

// smallPieces reads no large piece of an object.
type smallPieces struct {
	wholeStore
}

func (s smallPieces) GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	if length > 4<<20 {
		s.t.Errorf("%d bytes were read at once", length)
	}
	return s.wholeStore.GetRange(ctx, key, offset, length)
}

// TestVerifyBlob: an object is checked piece by piece, and no error tells what is in it.
func TestVerifyBlob(t *testing.T) {
	s, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, size := range []int{0, 1, 4 << 20, 9<<20 + 7} {
		data := make([]byte, size)
		if size > 0 {
			data[size-1] = 1
		}
		ref, err := storage.PutBlob(t.Context(), s, data)
		if err != nil {
			t.Fatal(err)
		}
		if err := storage.VerifyBlob(t.Context(), smallPieces{wholeStore{s, t}}, ref); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		longer, other, none := ref, ref, ref
		longer.Size++
		other.SHA256 = strings.Repeat("ab", 32)
		none.Key += "0"
		for name, test := range map[string]struct {
			ref  storage.Ref
			want error
		}{"longer": {longer, storage.ErrCorrupt}, "another digest": {other, storage.ErrCorrupt},
			"not there": {none, storage.ErrNotFound}} {
			err := storage.VerifyBlob(t.Context(), s, test.ref)
			if !errors.Is(err, test.want) {
				t.Errorf("%d bytes, %s: %v", size, name, err)
			}
		}
	}
}

// wholeStore reads no object whole.
type wholeStore struct {
	storage.Store
	t *testing.T
}

func (s wholeStore) Get(context.Context, string) ([]byte, error) {
	s.t.Error("the object was read whole")
	return nil, storage.ErrTooLarge
}

// TestBlobTakesItsSizeOfMemory: who puts a huge object in the place of a small
// one fills nobody's memory.
func TestBlobTakesItsSizeOfMemory(t *testing.T) {
	s, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ref, err := storage.PutBlob(t.Context(), s, []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), ref.Key, make([]byte, 64<<20)); err != nil {
		t.Fatal(err)
	}
	if _, err := storage.GetBlob(t.Context(), wholeStore{s, t}, ref); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("the huge object: %v", err)
	}
}

// TestMalformedRefs: a Ref in an event from outside is refused by an error that says that
// trying again is of no use.
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
		"large size":     {func(r *storage.Ref) { r.Size = storage.MaxStream + 1 }, storage.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			ref := good
			test.change(&ref)
			if err := ref.Validate(); !errors.Is(err, test.want) {
				t.Errorf("%s: %v, want %v", name, err, test.want)
			}
		})
	}
}

// TestDigestsAreNotTold: an error about an object of another content does not tell its digest,
// which tells short contents apart.
func TestDigestsAreNotTold(t *testing.T) {
	s, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Put(t.Context(), "private/key", []byte("content")); err != nil {
		t.Fatal(err)
	}
	for size := int64(1); size <= 8; size++ {
		ref := storage.Ref{Key: "private/key", SHA256: strings.Repeat("ab", 32), Size: size}
		_, got := storage.GetBlob(t.Context(), s, ref)
		for name, err := range map[string]error{"read": got, "verified": storage.VerifyBlob(t.Context(), s, ref)} {
			if !errors.Is(err, storage.ErrCorrupt) ||
				strings.Contains(err.Error(), storage.Digest([]byte("content")[:min(size, 7)])) {
				t.Errorf("%d bytes %s: %v", size, name, err)
			}
		}
	}
}
