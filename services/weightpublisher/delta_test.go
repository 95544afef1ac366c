package weightpublisher

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/weights"
	"github.com/rondo-rl/rondo/weights/fetch"
)

// TestDeltas: five versions that differ in a few elements are submitted, published and
// followed. Who follows reads the first whole and of the others a few per cent, also when each
// submission is delivered twice.
func TestDeltas(t *testing.T) {
	log := natstest.Log(t)
	s := &Service{store: log.Store(), logger: slog.New(slog.DiscardHandler)}
	values := make([]float32, 3<<17)
	source := rand.New(rand.NewPCG(1, 1))
	for i := range values {
		values[i] = source.Float32()
	}
	at := t.TempDir()
	folder, err := fetch.Open(at, "small")
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	whole, read := int64(0), int64(0)
	for version := int64(1); version <= 5; version++ {
		for i := int(version); i < len(values); i += 100 {
			values[i] += 1e-6
		}
		data := safetensors(values...)
		submitted := submit(t, log, "small", fmt.Sprint(version), version, file(t, log, "model.safetensors", data))
		for range 2 {
			if err := s.effect().Record(t.Context(), pipeline.Env{Log: log}, message(submitted)); err != nil {
				t.Fatal(err)
			}
		}
		v, err := folder.Fetch(t.Context(), log.Store(), version, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(at, "current", "model.safetensors")); err != nil ||
			string(got) != string(data) {
			t.Fatalf("version %d has other bytes: %v", version, err)
		}
		if version == 1 {
			whole = v.Read
			continue
		}
		if v.Deltas != 1 || v.Whole != "" {
			t.Errorf("version %d came by %d deltas: %s", version, v.Deltas, v.Whole)
		}
		read += v.Read
	}
	if whole < 4*int64(len(values)) || read > whole/5 {
		t.Errorf("%d bytes were read of the first version, and %d of the four that followed", whole, read)
	}
	if all := servicetest.All(t, log, events.Catalogue, events.WeightsPublishedType); len(all) != 5 {
		t.Errorf("%v were published", servicetest.IDs(all))
	}
}

// TestSmallWeightsCostNothing: of weights as small as the demo's nothing is read a second time, and
// nothing is written beside them.
func TestSmallWeightsCostNothing(t *testing.T) {
	log := natstest.Log(t)
	s := &Service{store: log.Store(), logger: slog.New(slog.DiscardHandler)}
	for version := int64(1); version <= 2; version++ {
		if err := s.effect().Record(t.Context(), pipeline.Env{Log: log},
			message(submit(t, log, "small", fmt.Sprint(version), version,
				model(t, log, float32(version), 2)))); err != nil {
			t.Fatal(err)
		}
	}
	for info, err := range log.Store().List(t.Context(), "weights/small/v") {
		if err != nil || filepath.Base(info.Key) != "manifest.json" {
			t.Errorf("%s, %v", info.Key, err)
		}
	}
	if current, _, err := weights.Current(t.Context(), log.Store(), "small"); err != nil || current != 2 {
		t.Errorf("the current version is %d, %v", current, err)
	}
}
