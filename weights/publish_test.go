package weights_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/weights"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

func store(t *testing.T) storage.Store {
	t.Helper()
	s, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// files are a version's files; value makes them differ.
func files(t *testing.T, value float32) []weights.Content {
	t.Helper()
	var model bytes.Buffer
	if err := safetensors.Write(&model, []safetensors.Data{safetensors.NewF32("w", []int64{1}, []float32{value})},
		nil); err != nil {
		t.Fatal(err)
	}
	return []weights.Content{{Name: "model.safetensors", Data: model.Bytes()},
		{Name: "config.json", Data: fmt.Appendf(nil, `{"value": %v}`, value)}}
}

func publish(t *testing.T, s storage.Store, version int64, value float32) *weights.Published {
	t.Helper()
	published, err := weights.Publish(t.Context(), s, "repair", version, files(t, value)...)
	if err != nil {
		t.Fatal(err)
	}
	return published
}

func wantCurrent(t *testing.T, s storage.Store, want int64) {
	t.Helper()
	if got, _, err := weights.Current(t.Context(), s, "repair"); err != nil || got != want {
		t.Errorf("current version %d, %v; want %d", got, err, want)
	}
}

func TestPublishAndFetch(t *testing.T) {
	s := store(t)
	if _, _, err := weights.Current(t.Context(), s, "repair"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("current version before any: %v", err)
	}
	if _, _, err := weights.Fetch(t.Context(), s, "repair", 3); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("fetch before any: %v", err)
	}
	published := publish(t, s, 3, 1)
	if published.Current != 3 || published.Ref.Key != "weights/repair/v000003/manifest.json" {
		t.Errorf("published %+v", published)
	}
	wantCurrent(t, s, 3)
	manifest, got, err := weights.Fetch(t.Context(), s, "repair", 3)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range files(t, 1) {
		if got[i].Name != want.Name || !bytes.Equal(got[i].Data, want.Data) {
			t.Errorf("file %d is %s with %d bytes, want %s with %d", i, got[i].Name, len(got[i].Data),
				want.Name, len(want.Data))
		}
		if manifest.Files[i].Key != weights.FileKey("repair", storage.Digest(want.Data)) {
			t.Errorf("file %s lies at %s", want.Name, manifest.Files[i].Key)
		}
	}
	if data, err := storage.GetBlob(t.Context(), s, published.Ref); err != nil || !json.Valid(data) {
		t.Errorf("manifest by its ref: %q, %v", data, err)
	}
}

func TestPublishAgain(t *testing.T) {
	s := store(t)
	first := publish(t, s, 1, 1)
	if again := publish(t, s, 1, 1); again.Ref != first.Ref {
		t.Errorf("the same files gave %v, then %v", first.Ref, again.Ref)
	}
	_, err := weights.Publish(t.Context(), s, "repair", 1, files(t, 2)...)
	if !errors.Is(err, storage.ErrExists) || !strings.Contains(err.Error(), "other content") {
		t.Errorf("other files under the same version: %v", err)
	}
	_, got, err := weights.Fetch(t.Context(), s, "repair", 1)
	if err != nil || !bytes.Equal(got[0].Data, files(t, 1)[0].Data) {
		t.Errorf("the first files are gone: %v", err)
	}
}

func TestPointerMovesForwardOnly(t *testing.T) {
	s := store(t)
	publish(t, s, 5, 5)
	if late := publish(t, s, 4, 4); late.Current != 5 {
		t.Errorf("after a late version 4 the current one is %d", late.Current)
	}
	publish(t, s, 5, 5)
	wantCurrent(t, s, 5)
	if _, _, err := weights.Fetch(t.Context(), s, "repair", 4); err != nil {
		t.Errorf("the late version cannot be fetched: %v", err)
	}
	publish(t, s, 1_000_000, 6)
	wantCurrent(t, s, 1_000_000)
}

func TestConcurrentPublishersEndAtTheLatest(t *testing.T) {
	s := store(t)
	var done sync.WaitGroup
	for version := range int64(8) {
		content := files(t, float32(version))
		done.Go(func() {
			if _, err := weights.Publish(t.Context(), s, "repair", version, content...); err != nil {
				t.Errorf("version %d: %v", version, err)
			}
		})
	}
	done.Wait()
	wantCurrent(t, s, 7)
}

// stopping fails every write after the first n.
type stopping struct {
	storage.Store
	left int
}

var errStopped = errors.New("the power is gone")

func (s *stopping) allowed() error {
	if s.left--; s.left < 0 {
		return errStopped
	}
	return nil
}

func (s *stopping) Put(ctx context.Context, key string, data []byte) error {
	if err := s.allowed(); err != nil {
		return err
	}
	return s.Store.Put(ctx, key, data)
}

func (s *stopping) PutReader(ctx context.Context, key string, r io.Reader, size int64) error {
	if err := s.allowed(); err != nil {
		return err
	}
	return s.Store.PutReader(ctx, key, r, size)
}

func (s *stopping) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	if err := s.allowed(); err != nil {
		return err
	}
	return s.Store.PutIfAbsent(ctx, key, data)
}

func (s *stopping) CompareAndSwap(ctx context.Context, key, etag string, data []byte) (string, error) {
	if err := s.allowed(); err != nil {
		return "", err
	}
	return s.Store.CompareAndSwap(ctx, key, etag, data)
}

// TestCrashAtEveryWrite: what is visible is complete, and publishing again finishes it.
func TestCrashAtEveryWrite(t *testing.T) {
	writes := 0
	for ; ; writes++ {
		s := store(t)
		publish(t, s, 1, 1)
		_, err := weights.Publish(t.Context(), &stopping{Store: s, left: writes}, "repair", 2, files(t, 2)...)
		if err == nil {
			break
		}
		if !errors.Is(err, errStopped) {
			t.Fatalf("after %d writes: %v", writes, err)
		}
		wantCurrent(t, s, 1)
		if _, _, err := weights.Fetch(t.Context(), s, "repair", 2); err != nil && !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("after %d writes a part is visible: %v", writes, err)
		}
		publish(t, s, 2, 2)
		wantCurrent(t, s, 2)
		if _, _, err := weights.Fetch(t.Context(), s, "repair", 2); err != nil {
			t.Errorf("after %d writes and another try: %v", writes, err)
		}
	}
	if writes != 4 {
		t.Errorf("%d writes, want 4: two files, manifest, pointer", writes)
	}
}

func TestPublishRefuses(t *testing.T) {
	good := files(t, 1)
	broken := weights.Content{Name: "model.safetensors", Data: good[0].Data[:len(good[0].Data)-1]}
	tests := []struct {
		name, policy string
		version      int64
		files        []weights.Content
		want         string
	}{
		{"policy name", "../other", 1, good, "policy name"},
		{"empty policy name", "", 1, good, "policy name"},
		{"version", "repair", -1, good, "version -1 is negative"},
		{"no files", "repair", 1, nil, "no file ends in .safetensors"},
		{"no tensors", "repair", 1, good[1:], "no file ends in .safetensors"},
		{"broken file", "repair", 1, []weights.Content{broken}, "file model.safetensors: safetensors: corrupt data"},
		{"same name twice", "repair", 1, []weights.Content{good[0], good[0]}, "once"},
		{"path", "repair", 1, []weights.Content{{Name: "../model.safetensors", Data: good[0].Data}}, "file name"},
		{"hidden", "repair", 1, []weights.Content{{Name: ".safetensors", Data: good[0].Data}}, "file name"},
		{"manifest", "repair", 1, append(files(t, 1), weights.Content{Name: "manifest.json"}), "not manifest.json"},
		{"no extension", "repair", 1, append(files(t, 1), weights.Content{Name: "LICENSE"}), "with an extension"},
	}
	s := store(t)
	for _, test := range tests {
		if _, err := weights.Publish(t.Context(), s, test.policy, test.version, test.files...); err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
	for info, err := range s.List(t.Context(), "") {
		t.Errorf("a refused version left %s (%v)", info.Key, err)
	}
}

func TestFetchRefusesWhatWasChanged(t *testing.T) {
	s := store(t)
	published := publish(t, s, 1, 1)
	manifest, err := s.Get(t.Context(), published.Ref.Key)
	if err != nil {
		t.Fatal(err)
	}
	put := func(key string, data []byte) {
		t.Helper()
		if err := s.Put(t.Context(), key, data); err != nil {
			t.Fatal(err)
		}
	}
	model := published.Manifest.Files[0]
	put(model.Key, bytes.Repeat([]byte{1}, int(model.Size)))
	if _, _, err := weights.Fetch(t.Context(), s, "repair", 1); !errors.Is(err, storage.ErrCorrupt) ||
		!strings.Contains(err.Error(), model.Key) {
		t.Errorf("changed file: %v", err)
	}
	for name, change := range map[string]string{
		`"version": 1`:                  `"version": 2`,
		`"repair"`:                      `"other"`,
		`"full"`:                        `"delta"`,
		`"base": -1`:                    `"base": 0`,
		`"config.json`:                  `"../config.json`,
		`"ref": "weights/repair/files/`: `"ref": "weights/other/files/`,
		`"policy"`:                      `"policy`,
		`"sha256":`:                     `"sha512":`,
	} {
		t.Run(name, func(t *testing.T) {
			put(published.Ref.Key, []byte(strings.ReplaceAll(string(manifest), name, change)))
			if _, err := weights.FetchManifest(t.Context(), s, "repair", 1); !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("manifest with %s: %v", change, err)
			}
		})
	}
	for _, pointer := range []string{"", "{}", `{"version":7}`, strings.Repeat("x", 100)} {
		put(weights.PointerKey("repair"), []byte(pointer))
		if _, _, err := weights.Current(t.Context(), s, "repair"); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("pointer %q: %v", pointer, err)
		}
		if _, err := weights.Publish(t.Context(), s, "repair", 9, files(t, 9)...); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("publish over the pointer %q: %v", pointer, err)
		}
	}
}
