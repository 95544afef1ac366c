package weightpublisher

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
	dirstore "github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/weights"
)

// vastStore pretends to hold an object of the largest size under every key of a
// blob, and notes what is read.
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

func (s *vastStore) Open(ctx context.Context, key string) (storage.Object, error) {
	if !topology.IsBlob(key) {
		return s.Store.Open(ctx, key)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads = append(s.reads, key)
	return nil, storage.ErrNotFound
}

// TestSmallStatementsOfHugeWeights: a statement of some 87 KB names terabytes. It is rejected
// before a byte of them is read.
func TestSmallStatementsOfHugeWeights(t *testing.T) {
	plain := natstest.Log(t)
	vast := &vastStore{Store: plain.Store()}
	log, err := eventlog.New(plain.Conn(), vast)
	if err != nil {
		t.Fatal(err)
	}
	s := &Service{store: log.Store(), logger: slog.New(slog.DiscardHandler)}
	named := func(count int, digest func(i int) string) (files []events.WeightsFile) {
		for i := range count {
			d := digest(i)
			files = append(files, events.WeightsFile{Name: fmt.Sprintf("%d.safetensors", i),
				Blob: storage.Ref{Key: storage.BlobKey(d), SHA256: d, Size: storage.MaxObject}})
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
		if err := s.effect().Record(t.Context(), pipeline.Env{Log: log}, message(submitted)); err != nil {
			t.Fatal(err)
		}
		rejected := servicetest.WaitData[events.WeightsRejected](t, log, events.Catalogue,
			events.WeightsRejectedType, policy)
		if !strings.Contains(rejected.Reason, c.want) {
			t.Errorf("%s: rejected as %q, want %q", policy, rejected.Reason, c.want)
		}
	}
	if len(vast.reads) > 0 {
		t.Errorf("it read %s", vast.reads[0])
	}
	// What passes is looked for one by one, and the first that is not there ends it.
	submitted := submit(t, log, "some", "1", 1, named(500, other)...)
	if err := s.effect().Record(t.Context(), pipeline.Env{Log: log}, message(submitted)); err != nil {
		t.Fatal(err)
	}
	if servicetest.WaitData[events.WeightsRejected](t, log, events.Catalogue, events.WeightsRejectedType,
		"some"); len(vast.reads) != 1 {
		t.Errorf("%d files were read: %v", len(vast.reads), vast.reads)
	}
}

// weighedStore measures the memory of the process whenever a piece of an object is read.
type weighedStore struct {
	storage.Store
	most uint64
}

func (s *weighedStore) Open(ctx context.Context, key string) (storage.Object, error) {
	object, err := s.Store.Open(ctx, key)
	return weighedObject{object, s}, err
}

type weighedObject struct {
	storage.Object
	store *weighedStore
}

func (o weighedObject) ReadAt(p []byte, offset int64) (int, error) {
	o.store.most = max(o.store.most, memory())
	return o.Object.ReadAt(p, offset)
}

// memory is what the objects on the heap take, dead ones too.
func memory() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// sparse makes a file of tensors of zeros in a directory store, which takes no room on the disk,
// and gives its reference.
func sparse(t *testing.T, dir string, size int64, key func(digest string) string) storage.Ref {
	t.Helper()
	header := withHeader(fmt.Sprintf(`{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}`, size, size))
	digest := sha256.New()
	digest.Write(header)
	zeros := make([]byte, 1<<20)
	for left := size; left > 0; left -= int64(len(zeros)) {
		digest.Write(zeros[:min(left, int64(len(zeros)))])
	}
	ref := storage.Ref{SHA256: hex.EncodeToString(digest.Sum(nil)), Size: int64(len(header)) + size}
	ref.Key = key(ref.SHA256)
	path := filepath.Join(dir, ref.Key)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, header, 0o644),
		os.Truncate(path, ref.Size)); err != nil {
		t.Fatal(err)
	}
	return ref
}

// TestWeightsPassInPieces: a file above the size of what a store reads whole is published in little
// memory: where it lies when a trainer put it below its policy, and copied when it is a blob.
func TestWeightsPassInPieces(t *testing.T) {
	const most = 64 << 20
	dir := t.TempDir()
	store, err := dirstore.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	weighed := &weighedStore{Store: store}
	log, err := eventlog.New(natstest.Log(t).Conn(), weighed)
	if err != nil {
		t.Fatal(err)
	}
	for policy, c := range map[string]struct {
		size int64
		key  func(digest string) string
	}{
		"in-place": {storage.MaxObject + 1<<28, func(digest string) string {
			return weights.FileKey("in-place",
				digest)
		}},
		"copied": {1 << 27, storage.BlobKey},
	} {
		t.Run(policy, func(t *testing.T) {
			ref := sparse(t, dir, c.size, c.key)
			submitted := submit(t, log, policy, "1", 1, events.WeightsFile{Name: "model.safetensors", Blob: ref})
			weighed.most = 0
			runtime.GC()
			before := memory()
			if err := (&Service{store: log.Store(), logger: slog.New(slog.DiscardHandler)}).effect().Record(t.Context(),
				pipeline.Env{Log: log}, message(submitted)); err != nil {
				t.Fatal(err)
			}
			servicetest.WaitData[events.WeightsPublished](t, log, events.Catalogue, events.WeightsPublishedType, policy)
			if used := int64(weighed.most) - int64(before); weighed.most == 0 || used > most {
				t.Errorf("%d MiB of memory for a file of %d MiB, want at most %d", used>>20, c.size>>20, most>>20)
			} else {
				t.Logf("%d MiB of memory for a file of %d MiB", used>>20, c.size>>20)
			}
			m, err := weights.FetchManifest(t.Context(), store, policy, 1)
			if err != nil || m.Files[0].Key != weights.FileKey(policy, ref.SHA256) {
				t.Fatalf("the manifest: %+v, %v", m, err)
			}
		})
	}
}

// TestForeignWeights: nobody publishes another policy's weights as his own, and no rejection
// tells what stands in a file.
func TestForeignWeights(t *testing.T) {
	log := natstest.Log(t)
	s := &Service{store: log.Store(), logger: slog.New(slog.DiscardHandler)}
	secret := withHeader(`{"swordfish":{"dtype":"F32","shape":[9],"data_offsets":[0,8]}}`, 1, 2)
	published, err := weights.Publish(t.Context(), log.Store(), "other", 1,
		weights.Content{Name: "model.safetensors", Data: safetensors(1, 2)})
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
		"whole":  {theirs, "name an object below blobs/"},
		"a-part": {short, "name an object below blobs/"},
		"pointer": {storage.Ref{Key: weights.PointerKey("other"), SHA256: strings.Repeat("ab", 32), Size: 1},
			"name an object below blobs/"},
		"no-names": {servicetest.Blob(t, log.Store(), secret), "a file of tensors is not"},
	} {
		submitted := submit(t, log, policy, "1", 1, events.WeightsFile{Name: "model.safetensors", Blob: c.ref})
		if err := s.effect().Record(t.Context(), pipeline.Env{Log: log}, message(submitted)); err != nil {
			t.Fatal(err)
		}
		rejected := servicetest.WaitData[events.WeightsRejected](t, log, events.Catalogue,
			events.WeightsRejectedType, policy)
		if !strings.Contains(rejected.Reason, c.want) || strings.Contains(rejected.Reason, "swordfish") ||
			strings.Contains(rejected.Reason, storage.Digest(safetensors(1, 2)[:3])) {
			t.Errorf("%s: rejected as %q, want %q", policy, rejected.Reason, c.want)
		}
	}
}
