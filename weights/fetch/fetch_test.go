package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/weights"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// tensors is a file of tensors of about so many bytes.
func tensors(t *testing.T, seed uint64, size int) weights.Content {
	t.Helper()
	data := make([]byte, size/4*4)
	source := rand.New(rand.NewPCG(seed, 1))
	for i := range data {
		data[i] = byte(source.Uint32())
		if i%4 == 3 {
			data[i] &^= 0x40 // so that each is a number
		}
	}
	var file bytes.Buffer
	if err := safetensors.Write(&file, []safetensors.Data{{Name: "w", Dtype: safetensors.F32,
		Shape: []int64{int64(size / 4)}, Bytes: data}}, nil); err != nil {
		t.Fatal(err)
	}
	return weights.Content{Name: "model.safetensors", Data: file.Bytes()}
}

func named(name, text string) weights.Content { return weights.Content{Name: name, Data: []byte(text)} }

// faulty is a store that counts the bytes that are read of it, and fails or
// lies when it is told to.
type faulty struct {
	storage.Store
	mu    sync.Mutex
	read  int64
	reads int
	fail  func(read int) error
	lie   func(key string, data []byte)
}

func (s *faulty) GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	s.mu.Lock()
	s.reads++
	n := s.reads
	s.mu.Unlock()
	if s.fail != nil {
		if err := s.fail(n); err != nil {
			return nil, err
		}
	}
	data, err := s.Store.GetRange(ctx, key, offset, length)
	s.mu.Lock()
	s.read += int64(len(data))
	s.mu.Unlock()
	if s.lie != nil {
		s.lie(key, data)
	}
	return data, err
}

func newStore(t *testing.T) *faulty {
	t.Helper()
	s, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &faulty{Store: s}
}

func publish(t *testing.T, s storage.Store, version int64, files ...weights.Content) {
	t.Helper()
	if _, err := weights.Publish(t.Context(), s, "p", version, files...); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, at string) *Folder {
	t.Helper()
	f, err := Open(at, "p")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	f.piece = 64 << 10
	return f
}

// same checks what a folder's link shows to who loads it.
func same(t *testing.T, at string, version int64, files ...weights.Content) {
	t.Helper()
	if target, err := os.Readlink(filepath.Join(at, "current")); err != nil || target != fmt.Sprintf("v%06d", version) {
		t.Errorf("the link names %q (%v), want version %d", target, err, version)
	}
	var names []string
	for _, file := range files {
		names = append(names, file.Name)
		if data, err := os.ReadFile(filepath.Join(at, "current", file.Name)); err != nil ||
			!bytes.Equal(data, file.Data) {
			t.Errorf("%s has %d bytes, which are not those that were published (%v)", file.Name, len(data), err)
		}
	}
	entries, err := os.ReadDir(filepath.Join(at, "current"))
	if err != nil {
		t.Error(err)
	}
	for _, e := range entries {
		if e.Name() != aboutName && !slices.Contains(names, e.Name()) {
			t.Errorf("the version has a file %s", e.Name())
		}
	}
}

func TestFetch(t *testing.T) {
	s, at := newStore(t), t.TempDir()
	first := []weights.Content{tensors(t, 1, 160<<10), named("config.json", `{"a":1}`), named("empty.txt", "")}
	second := []weights.Content{tensors(t, 2, 160<<10), named("config.json", `{"a":1}`)}
	publish(t, s, 3, first...)
	publish(t, s, 4, second...)
	f := open(t, at)
	var mu sync.Mutex
	var most, total int64
	v, err := f.Fetch(t.Context(), s, 3, "", func(done, all int64) {
		mu.Lock()
		defer mu.Unlock()
		most, total = max(most, done), all
	})
	if err != nil || v.Version != 3 || v.Bytes() != total || most != total {
		t.Fatalf("%+v, %v, %d of %d bytes were told of", v, err, most, total)
	}
	same(t, at, 3, first...)
	before := s.read
	if _, err := f.Fetch(t.Context(), s, 3, "", nil); err != nil || s.read != before {
		t.Errorf("a version that is there was read again: %v, %d bytes", err, s.read-before)
	}
	if _, err := f.Fetch(t.Context(), s, 4, "", nil); err != nil {
		t.Fatal(err)
	}
	same(t, at, 4, second...)
	if got, want := s.read-before, int64(len(second[0].Data)); got != want {
		t.Errorf("%d bytes were read, want the %d of the changed file alone", got, want)
	}
	if _, err := f.Fetch(t.Context(), s, 9, "", nil); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("a version that was never published: %v", err)
	}
	same(t, at, 4, second...)
}

// TestCorrupt: bytes that are not those which were published never come into the folder, and the
// next try does not trust what is left of them.
func TestCorrupt(t *testing.T) {
	s, at := newStore(t), t.TempDir()
	first, second := tensors(t, 1, 8<<10), tensors(t, 2, 160<<10)
	publish(t, s, 1, first)
	publish(t, s, 2, second)
	f := open(t, at)
	if _, err := f.Fetch(t.Context(), s, 1, "", nil); err != nil {
		t.Fatal(err)
	}
	s.lie = func(_ string, data []byte) { data[len(data)/2] ^= 4 }
	if _, err := f.Fetch(t.Context(), s, 2, "", nil); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("one wrong bit: %v", err)
	}
	same(t, at, 1, first)
	if _, err := f.Have(2); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the wrong version is there: %v", err)
	}
	s.lie = nil
	if _, err := f.Fetch(t.Context(), s, 2, "", nil); err != nil {
		t.Fatal(err)
	}
	same(t, at, 2, second)
}

// TestResumed: a fetch that ends after any number of reads goes on where it was; the folder shows
// the old version until the new one is whole.
func TestResumed(t *testing.T) {
	old, next := tensors(t, 1, 8<<10), []weights.Content{tensors(t, 2, 400<<10), named("config.json", "{}"),
		named("merges.txt", "a b")}
	size := int64(0)
	for _, file := range next {
		size += int64(len(file.Data))
	}
	errEnds := errors.New("the process ends")
	for _, ends := range []int{1, 2, 4, 7, 8, 9} {
		t.Run(fmt.Sprint("read ", ends), func(t *testing.T) {
			s, at := newStore(t), t.TempDir()
			publish(t, s, 1, old)
			publish(t, s, 2, next...)
			f := open(t, at)
			if _, err := f.Fetch(t.Context(), s, 1, "", nil); err != nil {
				t.Fatal(err)
			}
			s.reads, s.read = 0, 0
			s.fail = func(n int) error {
				if n >= ends {
					return errEnds
				}
				return nil
			}
			if _, err := f.Fetch(t.Context(), s, 2, "", nil); !errors.Is(err, errEnds) {
				t.Fatal(err)
			}
			same(t, at, 1, old)
			f.Close()
			s.fail = nil
			if _, err := open(t, at).Fetch(t.Context(), s, 2, "", nil); err != nil {
				t.Fatal(err)
			}
			same(t, at, 2, next...)
			if s.read != size {
				t.Errorf("%d bytes were read in all, the version has %d", s.read, size)
			}
		})
	}
}

// TestTornPart: what power failure left of a part is found and read anew: pieces that were noted
// and never reached the disk.
func TestTornPart(t *testing.T) {
	for name, tear := range map[string]func(t *testing.T, f *Folder){
		"zeroes": func(t *testing.T, f *Folder) {
			if err := os.WriteFile(filepath.Join(f.filesPath(2), "model.safetensors"),
				make([]byte, 160<<10), 0o644); err != nil {
				t.Fatal(err)
			}
		},
		"no file": func(t *testing.T, f *Folder) {
			if err := os.Remove(filepath.Join(f.filesPath(2), "model.safetensors")); err != nil {
				t.Fatal(err)
			}
		},
		"other pieces": func(t *testing.T, f *Folder) {
			if err := os.WriteFile(filepath.Join(f.marksPath(2), "model.safetensors"),
				[]byte{1, 1, 1, 1, 1, 1, 1}, 0o644); err != nil {
				t.Fatal(err)
			}
		},
		"a version without its note": func(t *testing.T, f *Folder) {
			if err := os.MkdirAll(filepath.Join(f.path(2), "x"), 0o755); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, at := newStore(t), t.TempDir()
			next := tensors(t, 2, 160<<10)
			publish(t, s, 2, next)
			f := open(t, at)
			s.fail = func(n int) error {
				if n == 3 {
					return errors.New("the power fails")
				}
				return nil
			}
			if _, err := f.Fetch(t.Context(), s, 2, "", nil); err == nil {
				t.Fatal("it did not fail")
			}
			tear(t, f)
			if _, err := f.Fetch(t.Context(), s, 2, "", nil); err != nil {
				t.Fatal(err)
			}
			same(t, at, 2, next)
		})
	}
}

func TestFolderIsTaken(t *testing.T) {
	s, at := newStore(t), t.TempDir()
	publish(t, s, 1, tensors(t, 1, 64))
	f := open(t, at)
	if _, err := Open(at, "p"); !errors.Is(err, ErrInUse) {
		t.Errorf("two at once: %v", err)
	}
	if _, err := f.Fetch(t.Context(), s, 1, "", nil); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := Open(at, "other"); err == nil || !strings.Contains(err.Error(), "a folder of its own") {
		t.Errorf("another policy's folder: %v", err)
	}
	open(t, at)
}

// TestBase: what a version lacks of settings comes from the model's folder, and never weights.
func TestBase(t *testing.T) {
	s, at, base := newStore(t), t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"config.json": "base", "tokenizer.json": "t", "merges.txt": "m", "model.safetensors": "old",
		"model.safetensors.index.json": "old", "x.bin": "old", ".hidden.json": "h", "rondo.json": "x",
	} {
		if err := os.WriteFile(filepath.Join(base, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := tensors(t, 1, 64)
	publish(t, s, 1, file, named("config.json", "own"))
	if _, err := open(t, at).Fetch(t.Context(), s, 1, base, nil); err != nil {
		t.Fatal(err)
	}
	same(t, at, 1, file, named("config.json", "own"), named("tokenizer.json", "t"), named("merges.txt", "m"))
}

func TestRemove(t *testing.T) {
	s, at := newStore(t), t.TempDir()
	f := open(t, at)
	for n := range int64(6) {
		publish(t, s, n+1, tensors(t, uint64(n), 64))
		if _, err := f.Fetch(t.Context(), s, n+1, "", nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(f.filesPath(3), 0o755); err != nil { // of a version that was left for a newer one
		t.Fatal(err)
	}
	if err := f.Remove(2, 2); err != nil {
		t.Fatal(err)
	}
	if got := f.numbers(); !slices.Equal(got, []int64{6, 5, 2}) {
		t.Errorf("versions %v are left", got)
	}
	if entries, err := os.ReadDir(at); err != nil || len(entries) != 5 { // with the link and the lock
		t.Errorf("%v, %v", entries, err)
	}
}
