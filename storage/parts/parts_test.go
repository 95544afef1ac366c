package parts_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/storage/parts"
)

// counting counts the bytes that go into a store, and come out of it.
type counting struct {
	storage.Store
	written, read atomic.Int64
}

func (c *counting) Put(ctx context.Context, key string, data []byte) error {
	c.written.Add(int64(len(data)))
	return c.Store.Put(ctx, key, data)
}

func (c *counting) GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	c.read.Add(length)
	return c.Store.GetRange(ctx, key, offset, length)
}

func open(t *testing.T) *counting {
	t.Helper()
	store, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return &counting{Store: store}
}

// noise cannot be compressed, and is the same for the same seed.
func noise(seed byte, size int) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(data)
	return data
}

func write(t *testing.T, store storage.Store, before *parts.Index, data []byte, piece int) (storage.Ref, *parts.Index) {
	t.Helper()
	w := parts.NewWriter(t.Context(), store, before)
	for rest := data; len(rest) > 0; {
		n := min(len(rest), piece)
		if _, err := w.Write(rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	ref, index, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return ref, index
}

func read(t *testing.T, store storage.Store, ref storage.Ref, cache *parts.Cache) ([]byte, error) {
	t.Helper()
	from, _, err := parts.Open(t.Context(), store, ref, cache)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	return io.ReadAll(from)
}

// TestVersionsCostWhatChanged: an insertion in the middle of a stream costs the parts around it,
// and equal streams have one name.
func TestVersionsCostWhatChanged(t *testing.T) {
	store := open(t)
	first := noise(1, 24<<20)
	ref, index := write(t, store, nil, first, 70_001)
	whole := store.written.Load()
	if whole < int64(len(first)) || len(index.Parts) < 8 {
		t.Fatalf("%d bytes in %d parts", whole, len(index.Parts))
	}
	if again, _ := write(t, store, nil, first, 1<<20); again != ref {
		t.Errorf("the same stream in other pieces: %v, then %v", ref, again)
	}
	for name, second := range map[string][]byte{
		"inserted": bytes.Join([][]byte{first[:12<<20], []byte("a line more\n"), first[12<<20:]}, nil),
		"deleted":  bytes.Join([][]byte{first[:12<<20], first[12<<20+1000:]}, nil),
		"appended": append(bytes.Clone(first), "at the end"...),
	} {
		t.Run(name, func(t *testing.T) {
			store.written.Store(0)
			changed, _ := write(t, store, index, second, 70_001)
			if cost := store.written.Load(); cost > 2*4<<20 {
				t.Errorf("a small difference costs %d bytes of %d", cost, whole)
			}
			if got, err := read(t, store, changed, nil); err != nil || !bytes.Equal(got, second) {
				t.Errorf("%d bytes come back, %v", len(got), err)
			}
		})
	}
}

// TestShortStreamsAreOneObject: it is a blob as any other, compressed.
func TestShortStreamsAreOneObject(t *testing.T) {
	store := open(t)
	ref, index := write(t, store, nil, []byte("short"), 2)
	if index != nil || parts.IsIndex(ref.Key) || ref.Key != storage.BlobKey(ref.SHA256) {
		t.Fatalf("%v, %v", ref, index)
	}
	stored, err := read(t, store, ref, nil)
	if err != nil {
		t.Fatal(err)
	}
	decoder, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	if got, err := decoder.DecodeAll(stored, nil); err != nil || string(got) != "short" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestCache: what a folder has is not read from the store again; what is damaged there is.
func TestCache(t *testing.T) {
	store, folder := open(t), t.TempDir()
	data := noise(2, 6<<20)
	ref, _ := write(t, store, nil, data, 1<<20)
	cache, err := parts.OpenCache(folder, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, cache *parts.Cache, least, most int64) {
		t.Helper()
		store.read.Store(0)
		got, err := read(t, store, ref, cache)
		if n := store.read.Load(); err != nil || !bytes.Equal(got, data) || n < least || n > most {
			t.Errorf("%s: %d bytes read of the store, %d come back, %v", what, n, len(got), err)
		}
	}
	check("cold", cache, 6<<20, 7<<20)
	check("warm", cache, 0, 1<<20)
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, name := range files {
		if err := os.Truncate(name, 1); err != nil {
			t.Fatal(err)
		}
	}
	check("damaged", cache, 6<<20, 7<<20)
	small, err := parts.OpenCache(folder, 3<<20)
	if err != nil {
		t.Fatal(err)
	}
	check("small", small, 0, 7<<20)
	held := int64(0)
	entries, _ := os.ReadDir(folder)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		held += info.Size()
	}
	if held > 3<<20 {
		t.Errorf("%d bytes are kept where 3 MiB are allowed", held)
	}
}

// TestHostileIndexes: an index may come from outside.
func TestHostileIndexes(t *testing.T) {
	store := open(t)
	_, index := write(t, store, nil, noise(3, 3<<20), 1<<20)
	for name, change := range map[string]func(x *parts.Index){
		"a version of the future": func(x *parts.Index) { x.Version++ },
		"another size":            func(x *parts.Index) { x.Bytes++ },
		"a foreign object":        func(x *parts.Index) { x.Parts[0].Key = "weights/p/latest.json" },
		"a part that is another": func(x *parts.Index) {
			x.Parts[0].Ref, x.Parts[1].Ref = x.Parts[1].Ref,
				x.Parts[0].Ref
		},
		"a huge part":     func(x *parts.Index) { x.Parts[0].Bytes = 1 << 40 },
		"a negative part": func(x *parts.Index) { x.Parts[0].Bytes = -1 },
		"parts that swap places": func(x *parts.Index) {
			x.Parts[0].Sum, x.Parts[1].Sum = x.Parts[1].Sum,
				x.Parts[0].Sum
		},
	} {
		t.Run(name, func(t *testing.T) {
			bad := *index
			bad.Parts = append([]parts.Part(nil), index.Parts...)
			change(&bad)
			text, err := json.Marshal(bad)
			if err != nil {
				t.Fatal(err)
			}
			key := func(digest string) string { return "blobs/parts/" + digest[:2] + "/" + digest }
			ref, err := storage.PutKeyedFrom(t.Context(), store, key, bytes.NewReader(text), int64(len(text)))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := read(t, store, ref, nil); !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("%v, want ErrCorrupt", err)
			}
		})
	}
	bomb, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := storage.PutBlob(t.Context(), store, bomb.EncodeAll(make([]byte, 64<<20), nil))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(parts.Index{Version: 1, Bytes: 4 << 20,
		Parts: []parts.Part{{Ref: stored, Bytes: 4 << 20, Sum: stored.SHA256}}})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := storage.PutKeyedFrom(t.Context(), store,
		func(digest string) string { return "blobs/parts/" + digest[:2] + "/" + digest },
		bytes.NewReader(text), int64(len(text)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := read(t, store, ref, nil); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("a bomb: %v, want ErrCorrupt", err)
	}
}

// failing refuses objects after some.
type failing struct {
	storage.Store
	left atomic.Int64
}

var errFull = errors.New("the store is full")

func (f *failing) Put(ctx context.Context, key string, data []byte) error {
	if f.left.Add(-1) < 0 {
		return errFull
	}
	return f.Store.Put(ctx, key, data)
}

// TestAFailingStoreFailsTheStream: no reference comes of parts that are missing.
func TestAFailingStoreFailsTheStream(t *testing.T) {
	for left := range int64(6) {
		store := &failing{Store: open(t).Store}
		store.left.Store(left)
		w := parts.NewWriter(t.Context(), store, nil)
		_, err := w.Write(noise(4, 12<<20))
		if err == nil {
			_, _, err = w.Close()
		} else {
			w.Abandon()
		}
		if !errors.Is(err, errFull) {
			t.Errorf("after %d objects: %v", left, err)
		}
	}
}
