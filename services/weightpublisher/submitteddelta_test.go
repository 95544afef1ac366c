package weightpublisher

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
	"github.com/rondo-rl/rondo/weights/delta"
	st "github.com/rondo-rl/rondo/weights/safetensors"
)

// between is the delta from one file to another, both called model.safetensors.
func between(t *testing.T, old, next []byte) []byte {
	t.Helper()
	var opened [2]*st.Checkpoint
	for i, data := range [][]byte{old, next} {
		f, err := st.NewFile("model.safetensors", bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		if opened[i], err = st.NewCheckpoint(f); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if err := delta.Encode(t.Context(), &b, opened[0], opened[1]); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestSubmittedDeltaOfSmallWeights: the publisher makes no delta of weights so small, but takes one
// that the trainer has made.
func TestSubmittedDeltaOfSmallWeights(t *testing.T) {
	log := natstest.Log(t)
	s := &Service{store: log.Store(), logger: slog.New(slog.DiscardHandler)}
	values := make([]float32, 10000)
	first := safetensors(values...)
	values[7] = 1
	second := safetensors(values...)
	d := between(t, first, second)
	blob, err := weights.Upload(t.Context(), log.Store(), "small", bytes.NewReader(d), int64(len(d)))
	if err != nil {
		t.Fatal(err)
	}
	digest := storage.Digest(second)
	made := events.WeightsFile{Name: "model.safetensors",
		Blob: storage.Ref{Key: weights.FileKey("small", digest), SHA256: digest, Size: int64(len(second))}}
	for version, wish := range []events.WeightsSubmitted{
		{Files: []events.WeightsFile{file(t, log, "model.safetensors", first)}},
		{Files: []events.WeightsFile{made}, Delta: &events.WeightsDelta{Base: 1, Blob: blob}},
	} {
		wish.Version, wish.Run = int64(version+1), "r"
		submitted := servicetest.Append(t, log, servicetest.Event(t, events.Catalogue, events.WeightsSubmittedType,
			"small", fmt.Sprint(version), wish))
		if err := s.effect().Record(t.Context(), pipeline.Env{Log: log}, message(submitted)); err != nil {
			t.Fatal(err)
		}
	}
	if described, err := weights.FetchDelta(t.Context(), log.Store(), "small", 2); err != nil || described.Ref != blob {
		t.Errorf("%+v, %v", described, err)
	}
}

// TestSubmittedDeltas: a trainer uploads a delta and no file. The publisher makes the file, which
// has the bytes that the trainer named, and the delta becomes the version's. One that is damaged,
// from another version or to other bytes is rejected, and no file appears.
func TestSubmittedDeltas(t *testing.T) {
	log := natstest.Log(t)
	s := &Service{store: log.Store(), logger: slog.New(slog.DiscardHandler)}
	values := make([]float32, 3<<17)
	source := rand.New(rand.NewPCG(1, 1))
	version := func(change float32) []byte {
		for i := range values {
			if change == 0 || i%100 == 0 {
				values[i] = source.Float32() + change
			}
		}
		return safetensors(values...)
	}
	first, second, other := version(0), version(1), version(2)
	named := func(data []byte) events.WeightsFile {
		sum := sha256.Sum256(data)
		digest := hex.EncodeToString(sum[:])
		return events.WeightsFile{Name: "model.safetensors",
			Blob: storage.Ref{Key: weights.FileKey("small", digest), SHA256: digest, Size: int64(len(data))}}
	}
	record := func(number int64, file events.WeightsFile, base int64, d []byte) (uploaded storage.Ref) {
		t.Helper()
		wish := events.WeightsSubmitted{Version: number, Run: "r", Files: []events.WeightsFile{file}}
		if d != nil {
			ref, err := weights.Upload(t.Context(), log.Store(), "small", bytes.NewReader(d), int64(len(d)))
			if err != nil {
				t.Fatal(err)
			}
			wish.Delta = &events.WeightsDelta{Base: base, Blob: ref}
			uploaded = ref
		}
		submitted := servicetest.Append(t, log, servicetest.Event(t, events.Catalogue, events.WeightsSubmittedType,
			"small", fmt.Sprint("s", source.Uint32()), wish))
		for range 2 { // delivered twice
			if err := s.effect().Record(t.Context(), pipeline.Env{Log: log}, message(submitted)); err != nil {
				t.Fatal(err)
			}
		}
		return uploaded
	}
	record(1, file(t, log, "model.safetensors", first), 0, nil)
	good := between(t, first, second)
	cut := good[:len(good)/2]
	flipped := bytes.Clone(good)
	flipped[len(flipped)/3] ^= 4
	for name, c := range map[string]struct {
		base int64
		d    []byte
		want string
	}{
		"cut": {1, cut, weights.ErrDelta.Error()}, "flipped": {1, flipped, weights.ErrDelta.Error()},
		"other bytes":  {1, between(t, first, other), weights.ErrDelta.Error()},
		"other base":   {1, between(t, other, second), weights.ErrDelta.Error()},
		"no such base": {0, good, weights.ErrDelta.Error()}, "itself": {2, good, "an older version"},
	} {
		before := len(servicetest.All(t, log, events.Catalogue, events.WeightsRejectedType))
		record(2, named(second), c.base, c.d)
		all := servicetest.All(t, log, events.Catalogue, events.WeightsRejectedType)
		if len(all) == before {
			t.Fatalf("%s: it was not rejected", name)
		}
		if rejected, err := events.Data[events.WeightsRejected](all[len(all)-1]); err != nil ||
			!strings.Contains(rejected.Reason, c.want) {
			t.Errorf("%s: rejected as %q", name, rejected.Reason)
		}
		if _, err := log.Store().Stat(t.Context(), named(second).Blob.Key); err == nil {
			t.Fatalf("%s: a file appeared", name)
		}
	}
	uploaded := record(2, named(second), 1, good)
	manifest, files, err := weights.Fetch(t.Context(), log.Store(), "small", 2)
	if err != nil || !bytes.Equal(files[0].Data, second) || manifest.Files[0].Key != named(second).Blob.Key {
		t.Fatalf("version 2: %+v, %v", manifest, err)
	}
	described, err := weights.FetchDelta(t.Context(), log.Store(), "small", 2)
	if err != nil || described.Base != 1 || described.Ref != uploaded {
		t.Fatalf("its delta: %+v, %v", described, err)
	}
	for info, err := range log.Store().List(t.Context(), "weights/small/v000002/") {
		if name := filepath.Base(info.Key); err != nil || name != "manifest.json" && name != "delta.json" {
			t.Errorf("%s is there: the delta is stored twice (%v)", info.Key, err)
		}
	}
	if data, err := storage.GetBlob(t.Context(), log.Store(), described.Ref); err != nil || !bytes.Equal(data, good) {
		t.Errorf("the delta is not the trainer's: %v", err)
	}
}
