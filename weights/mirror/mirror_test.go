package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/weights"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

func newStore(t *testing.T) storage.Store {
	t.Helper()
	s, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// published fills an origin with versions whose files are large enough for deltas, of
// which settings never change.
func published(t *testing.T, versions int64) storage.Store {
	t.Helper()
	s := newStore(t)
	values := make([]float32, 3<<17)
	for i := range values {
		values[i] = float32(i)
	}
	for version := range versions {
		for i := int(version); i < len(values); i += 64 {
			values[i]++
		}
		var file bytes.Buffer
		if err := safetensors.Write(&file, []safetensors.Data{safetensors.NewF32("w", []int64{int64(len(values))},
			values)}, nil); err != nil {
			t.Fatal(err)
		}
		publish(t, s, version+1, file.Bytes())
	}
	return s
}

func publish(t *testing.T, s storage.Store, version int64, model []byte) {
	t.Helper()
	if _, err := weights.Publish(t.Context(), s, "p", version, weights.Content{Name: "model.safetensors", Data: model},
		weights.Content{Name: "config.json", Data: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
}

// same checks that a store has all that the origin has of the policy, and nothing else.
func same(t *testing.T, from, to storage.Store) {
	t.Helper()
	keys := map[string]bool{}
	for info, err := range from.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		keys[info.Key] = true
		want, err := from.Get(t.Context(), info.Key)
		got, gotErr := to.Get(t.Context(), info.Key)
		if err != nil || gotErr != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes instead of %d (%v, %v)", info.Key, len(got), len(want), gotErr, err)
		}
	}
	for info, err := range to.List(t.Context(), "") {
		if err != nil || !keys[info.Key] {
			t.Errorf("the mirror has %s, %v", info.Key, err)
		}
	}
}

// visible checks that all that readers of a store can see is there, and gives
// the number of its versions.
func visible(t *testing.T, s storage.Store) int {
	t.Helper()
	versions, err := weights.Versions(t.Context(), s, "p")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range versions {
		if _, _, err := weights.Fetch(t.Context(), s, "p", v.Version); err != nil {
			t.Errorf("version %d is seen and not whole: %v", v.Version, err)
		}
		if d, err := weights.FetchDelta(t.Context(), s, "p", v.Version); err == nil {
			if err := storage.VerifyBlob(t.Context(), s, d.Ref); err != nil {
				t.Errorf("the delta of version %d is described and not whole: %v", v.Version, err)
			}
		}
	}
	if current, _, err := weights.Current(t.Context(), s, "p"); err == nil {
		if _, err := weights.FetchManifest(t.Context(), s, "p", current); err != nil {
			t.Errorf("the pointer names version %d: %v", current, err)
		}
	} else if !errors.Is(err, storage.ErrNotFound) {
		t.Error(err)
	}
	return len(versions)
}

// writes is a store whose writes can fail: before each is called with its number and key, and after
// may replace what a write that was done answers.
type writes struct {
	storage.Store
	mu     sync.Mutex
	keys   []string
	before func(n int, key string) error
	after  func(n int, key string) error
}

func (w *writes) write(key string, do func() error) error {
	w.mu.Lock()
	w.keys = append(w.keys, key)
	n := len(w.keys)
	w.mu.Unlock()
	if w.before != nil {
		if err := w.before(n, key); err != nil {
			return err
		}
	}
	err := do()
	if err == nil && w.after != nil {
		err = w.after(n, key)
	}
	return err
}

func (w *writes) PutReader(ctx context.Context, key string, r io.Reader, size int64) error {
	return w.write(key, func() error { return w.Store.PutReader(ctx, key, r, size) })
}

func (w *writes) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	return w.write(key, func() error { return w.Store.PutIfAbsent(ctx, key, data) })
}

func (w *writes) CompareAndSwap(ctx context.Context, key, etag string, data []byte) (tag string, err error) {
	err = w.write(key, func() error { tag, err = w.Store.CompareAndSwap(ctx, key, etag, data); return err })
	return tag, err
}

var errStopped = errors.New("the power is gone")

func TestMirror(t *testing.T) {
	from, to := published(t, 3), &writes{Store: newStore(t)}
	m := &Mirror{From: from, To: to, Policy: "p"}
	versions, err := m.Newest(t.Context(), 2)
	if err != nil || fmt.Sprint(versions) != "[2 3]" {
		t.Fatalf("%v, %v", versions, err)
	}
	lag, err := LagOf(t.Context(), from, to, "p", time.Now().Add(time.Hour))
	if err != nil || lag.Current != -1 || lag.Newest != 3 || lag.Versions != 3 || lag.Seconds < 3000 {
		t.Errorf("before: %+v, %v", lag, err)
	}
	for version := range int64(3) {
		copied, err := m.Version(t.Context(), version+1)
		if err != nil || copied.Copied == 0 || copied.Copied > copied.Bytes || copied.Current != version+1 {
			t.Errorf("%+v, %v", copied, err)
		}
	}
	same(t, from, to)
	// with a delta; the settings are there already
	kinds := []string{"/from-v", "/files/", "/files/", "/delta.json", "/manifest.json", "/current"}
	for _, key := range to.keys[len(to.keys)-5:] {
		for !strings.Contains(key, kinds[0]) {
			if kinds = kinds[1:]; len(kinds) == 0 {
				t.Fatalf("the order of the writes: %q", to.keys)
			}
		}
	}
	if lag, err = LagOf(t.Context(), from, to, "p", time.Now()); err != nil || lag != (Lag{Current: 3, Newest: 3}) {
		t.Errorf("behind: %+v, %v", lag, err)
	}
	done := len(to.keys)
	if copied, err := m.Version(t.Context(), 2); err != nil || copied.Copied != 0 || copied.Current != 3 {
		t.Errorf("again: %+v, %v", copied, err)
	}
	for _, key := range to.keys[done:] { // these answer that it is there
		if !strings.HasSuffix(key, ".json") {
			t.Errorf("%s was written again", key)
		}
	}
	if _, err := m.Version(t.Context(), 9); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("a version that is not there: %v", err)
	}
}

// TestKilledAtEachStep: a mirror dies before a write, half way through it, or when it was done and
// the answer was lost. What can be seen is whole, and the next one goes on.
func TestKilledAtEachStep(t *testing.T) {
	from := published(t, 2)
	for name, arm := range map[string]func(w *writes, at int){
		"before": func(w *writes, at int) {
			w.before = func(n int, _ string) error {
				if n >= at {
					return errStopped
				}
				return nil
			}
		},
		"answer lost": func(w *writes, at int) {
			w.before = func(n int, _ string) error {
				if n > at {
					return errStopped
				}
				return nil
			}
			w.after = func(n int, _ string) error {
				if n >= at {
					return errStopped
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for at := 1; ; at++ {
				to := &writes{Store: newStore(t)}
				arm(to, at)
				m := &Mirror{From: from, To: to, Policy: "p"}
				err := both(t, m)
				if err == nil {
					if at < 10 {
						t.Errorf("there were %d writes", at-1)
					}
					return
				}
				if !errors.Is(err, errStopped) {
					t.Fatalf("at write %d: %v", at, err)
				}
				visible(t, to.Store)
				was := map[string]bool{}
				for info, err := range to.Store.List(t.Context(), "weights/p/files/") {
					if err != nil {
						t.Fatal(err)
					}
					was[info.Key] = true
				}
				next := &writes{Store: to.Store}
				if err := both(t, &Mirror{From: from, To: next, Policy: "p"}); err != nil {
					t.Fatalf("after write %d: %v", at, err)
				}
				same(t, from, to.Store)
				for _, key := range next.keys {
					if was[key] {
						t.Errorf("%s was there and is written again", key)
					}
				}
			}
		})
	}
}

// both mirrors versions 1 and 2.
func both(t *testing.T, m *Mirror) error {
	t.Helper()
	for version := range int64(2) {
		if _, err := m.Version(t.Context(), version+1); err != nil {
			return err
		}
	}
	return nil
}

// lying changes one byte of what is read of some object.
type lying struct {
	storage.Store
	about string
}

func (s lying) Open(ctx context.Context, key string) (storage.Object, error) {
	object, err := s.Store.Open(ctx, key)
	if err == nil && strings.Contains(key, s.about) {
		object = lie{object}
	}
	return object, err
}

type lie struct{ storage.Object }

func (o lie) ReadAt(p []byte, at int64) (int, error) {
	n, err := o.Object.ReadAt(p, at)
	if n > 0 {
		p[n-1] ^= 1
	}
	return n, err
}

// TestWrongBytes: bytes that are not those of the manifest are not written, and the version does
// not appear. A wrong delta costs the delta alone.
func TestWrongBytes(t *testing.T) {
	from := published(t, 2)
	to := newStore(t)
	_, err := (&Mirror{From: lying{from, "/files/"}, To: to, Policy: "p"}).Version(t.Context(), 2)
	if !errors.Is(err, storage.ErrCorrupt) || visible(t, to) != 0 {
		t.Errorf("wrong files: %v", err)
	}
	for info := range to.List(t.Context(), "weights/p/files/") {
		t.Errorf("%s was written", info.Key)
	}
	to = newStore(t)
	if _, err = (&Mirror{From: lying{from, "/from-v"}, To: to, Policy: "p"}).Version(t.Context(), 2); err != nil ||
		visible(t, to) != 1 {
		t.Errorf("a wrong delta: %v", err)
	}
	if _, err := weights.FetchDelta(t.Context(), to, "p", 2); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("a wrong delta is described: %v", err)
	}
	manifest, _, err := from.Load(t.Context(), weights.ManifestKey("p", 1))
	if err != nil {
		t.Fatal(err)
	}
	other := newStore(t)
	if err := other.Put(t.Context(), weights.ManifestKey("p", 1),
		bytes.ReplaceAll(manifest, []byte(`"config.json"`), []byte(`"other.json"`))); err != nil {
		t.Fatal(err)
	}
	if _, err := (&Mirror{From: from, To: other, Policy: "p"}).Version(t.Context(),
		1); !errors.Is(err, storage.ErrExists) {
		t.Errorf("another version of that number is there: %v", err)
	}
}

// TestDamage: an object of another size, as a store that lost power leaves it, is written again; so
// is one that somebody deleted.
func TestDamage(t *testing.T) {
	from, to := published(t, 1), newStore(t)
	m := &Mirror{From: from, To: to, Policy: "p"}
	if _, err := m.Version(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	manifest, err := weights.FetchManifest(t.Context(), to, "p", 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(to.Put(t.Context(), manifest.Files[0].Key, []byte("cut")),
		to.Delete(t.Context(), manifest.Files[1].Key)); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Version(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	same(t, from, to)
}

func TestTogether(t *testing.T) {
	from, to := published(t, 2), newStore(t)
	var mirroring sync.WaitGroup
	for range 3 {
		mirroring.Go(func() {
			if err := both(t, &Mirror{From: from, To: to, Policy: "p"}); err != nil {
				t.Error(err)
			}
		})
	}
	mirroring.Wait()
	same(t, from, to)
}

// weighed is a store that measures the memory of the process while it is written to.
type weighed struct {
	storage.Store
	most atomic.Uint64
}

func (s *weighed) PutReader(ctx context.Context, key string, r io.Reader, size int64) error {
	return s.Store.PutReader(ctx, key, weighing{r, s}, size)
}

type weighing struct {
	io.Reader
	s *weighed
}

func (w weighing) Read(p []byte) (int, error) {
	if now := memory(); now > w.s.most.Load() {
		w.s.most.Store(now)
	}
	return w.Reader.Read(p)
}

func memory() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// TestManyVersions: 250 versions, of which one has a file of 128 MiB, pass in little memory.
func TestManyVersions(t *testing.T) {
	const most = 64 << 20
	from := newStore(t)
	large := bytes.NewBufferString("")
	fmt.Fprintf(large, "%s%s", "\x48\x00\x00\x00\x00\x00\x00\x00",
		fmt.Sprintf("%-72s", fmt.Sprintf(`{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}`, 128<<20, 128<<20)))
	large.Write(make([]byte, 128<<20))
	small := large.Bytes()[:0:0]
	small = append(small, fmt.Appendf(nil, "\x40\x00\x00\x00\x00\x00\x00\x00%-64s",
		`{"w":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}`)...)
	small = append(small, 1, 2, 3, 4, 5, 6, 7, 8)
	for version := range int64(250) {
		model := small
		if version == 100 {
			model = large.Bytes()
		}
		publish(t, from, version, model)
	}
	large = nil
	runtime.GC()
	before := memory()
	to := &weighed{Store: newStore(t)}
	m := &Mirror{From: from, To: to, Policy: "p"}
	versions, err := m.Newest(t.Context(), 1000)
	if err != nil || len(versions) != 250 {
		t.Fatalf("%d versions, %v", len(versions), err)
	}
	for _, version := range versions {
		if _, err := m.Version(t.Context(), version); err != nil {
			t.Fatal(err)
		}
	}
	if used := int64(to.most.Load()) - int64(before); used > most {
		t.Errorf("%d MiB of memory, want at most %d", used>>20, most>>20)
	}
	if lag, err := LagOf(t.Context(), from, to, "p", time.Now()); err != nil ||
		lag.Versions != 0 || lag.Current != 249 {
		t.Errorf("%+v, %v", lag, err)
	}
}
