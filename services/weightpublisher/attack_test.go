package weightpublisher

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
)

// vastStore pretends to hold an object of the largest size under every key of a blob, and notes what is read.
type vastStore struct {
	storage.Store
	mu    sync.Mutex
	reads []string
}

func (s *vastStore) Stat(ctx context.Context, key string) (storage.Info, error) {
	if topology.IsBlob(key) {
		return storage.Info{Key: key, Size: storage.MaxObject}, nil
	}
	return s.Store.Stat(ctx, key)
}

func (s *vastStore) GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	if length < storage.MaxObject { // a statement's body
		return s.Store.GetRange(ctx, key, offset, length)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads = append(s.reads, fmt.Sprintf("%d bytes of %s", length, key))
	return nil, storage.ErrNotFound
}

// TestSmallStatementsOfHugeWeights: a statement of some 87 KB names terabytes. It is rejected before a byte of them is read.
func TestSmallStatementsOfHugeWeights(t *testing.T) {
	plain := natstest.Log(t)
	vast := &vastStore{Store: plain.Store()}
	log, err := eventlog.New(plain.Conn(), vast)
	if err != nil {
		t.Fatal(err)
	}
	s := &Service{log: log, logger: slog.New(slog.DiscardHandler)}
	named := func(count int, digest func(i int) string) (files []events.WeightsFile) {
		for i := range count {
			d := digest(i)
			files = append(files, events.WeightsFile{Name: fmt.Sprintf("%d.safetensors", i), Blob: storage.Ref{Key: storage.BlobKey(d), SHA256: d, Size: storage.MaxObject}})
		}
		return files
	}
	same := func(int) string { return strings.Repeat("ab", 32) }
	other := func(i int) string { return fmt.Sprintf("%064x", i) }
	for policy, c := range map[string]struct {
		files []events.WeightsFile
		want  string
	}{
		"one-blob-often": {named(400, same), "the same content as file 0.safetensors"},
		"many-blobs":     {named(1025, other), "bytes together"},
		"many-files":     {named(4097, other), "4097 files"},
	} {
		submitted := submit(t, log, policy, "1", 1, c.files...)
		if c.want != "4097 files" && len(submitted.Data) > 300_000 {
			t.Errorf("%s: a statement of %d bytes", policy, len(submitted.Data))
		}
		if err := s.effect().Record(t.Context(), log, message(submitted)); err != nil {
			t.Fatal(err)
		}
		rejected := servicetest.WaitData[events.WeightsRejected](t, log, events.Catalogue, events.WeightsRejectedType, policy)
		if !strings.Contains(rejected.Reason, c.want) {
			t.Errorf("%s: rejected as %q, want %q", policy, rejected.Reason, c.want)
		}
	}
	if len(vast.reads) > 0 {
		t.Errorf("it read %s", vast.reads[0])
	}
	// What passes is looked for one by one, and the first that is not there ends it.
	submitted := submit(t, log, "some", "1", 1, named(500, other)...)
	if err := s.effect().Record(t.Context(), log, message(submitted)); err != nil {
		t.Fatal(err)
	}
	if servicetest.WaitData[events.WeightsRejected](t, log, events.Catalogue, events.WeightsRejectedType, "some"); len(vast.reads) != 1 {
		t.Errorf("%d files were read: %v", len(vast.reads), vast.reads)
	}
}

// weighedStore measures the heap whenever an object is written.
type weighedStore struct {
	storage.Store
	most uint64
}

func (s *weighedStore) Put(ctx context.Context, key string, data []byte) error {
	s.most = max(s.most, heap())
	return s.Store.Put(ctx, key, data)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestOneFileInMemory: however many files a version has, no more than one of them is in memory, and that once.
func TestOneFileInMemory(t *testing.T) {
	const count, size = 16, 8 << 20
	plain := natstest.Log(t)
	weighed := &weighedStore{Store: plain.Store()}
	log, err := eventlog.New(plain.Conn(), weighed)
	if err != nil {
		t.Fatal(err)
	}
	var files []events.WeightsFile
	for i := range count {
		data := safetensors(make([]float32, size/4)...)
		data[len(data)-1] = byte(i)
		ref, err := storage.PutBlob(t.Context(), plain.Store(), data)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, events.WeightsFile{Name: fmt.Sprintf("model-%d.safetensors", i), Blob: ref})
	}
	submitted := submit(t, log, "small", "1", 1, files...)
	before := heap()
	if err := (&Service{log: log, logger: slog.New(slog.DiscardHandler)}).effect().Record(t.Context(), log, message(submitted)); err != nil {
		t.Fatal(err)
	}
	if published := servicetest.WaitData[events.WeightsPublished](t, log, events.Catalogue, events.WeightsPublishedType, "small"); published.Version != 1 {
		t.Errorf("published %+v", published)
	}
	if used := int64(weighed.most) - int64(before); used > size+size/2 {
		t.Errorf("%d MiB were in memory at once, for files of %d MiB", used>>20, size>>20)
	}
	if m, err := weights.FetchManifest(t.Context(), log.Store(), "small", 1); err != nil || len(m.Files) != count {
		t.Errorf("the manifest: %+v, %v", m, err)
	}
}

// TestForeignWeights: nobody publishes another policy's weights as his own, and no rejection tells what stands in a file.
func TestForeignWeights(t *testing.T) {
	log := natstest.Log(t)
	s := &Service{log: log, logger: slog.New(slog.DiscardHandler)}
	secret := withHeader(`{"swordfish":{"dtype":"F32","shape":[9],"data_offsets":[0,8]}}`, 1, 2)
	published, err := weights.Publish(t.Context(), log.Store(), "other", 1, weights.Content{Name: "model.safetensors", Data: safetensors(1, 2)})
	if err != nil {
		t.Fatal(err)
	}
	theirs := published.Manifest.Files[0].Ref
	short := theirs
	short.Size = 3
	for policy, c := range map[string]struct {
		ref  storage.Ref
		want string
	}{
		"whole":    {theirs, "name an object below blobs/"},
		"a-part":   {short, "name an object below blobs/"},
		"pointer":  {storage.Ref{Key: weights.PointerKey("other"), SHA256: strings.Repeat("ab", 32), Size: 1}, "name an object below blobs/"},
		"no-names": {servicetest.Blob(t, log.Store(), secret), "a file of tensors is not"},
	} {
		submitted := submit(t, log, policy, "1", 1, events.WeightsFile{Name: "model.safetensors", Blob: c.ref})
		if err := s.effect().Record(t.Context(), log, message(submitted)); err != nil {
			t.Fatal(err)
		}
		rejected := servicetest.WaitData[events.WeightsRejected](t, log, events.Catalogue, events.WeightsRejectedType, policy)
		if !strings.Contains(rejected.Reason, c.want) || strings.Contains(rejected.Reason, "swordfish") || strings.Contains(rejected.Reason, storage.Digest(safetensors(1, 2)[:3])) {
			t.Errorf("%s: rejected as %q, want %q", policy, rejected.Reason, c.want)
		}
	}
}
