package recovery_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/recovery"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// recordedObjects makes an archived run whose events refer to every kind of object, and
// nothing else is in the store.
func recordedObjects(t *testing.T) (*eventlog.Log, []events.SegmentSealed) {
	t.Helper()
	log := natstest.Log(t)
	if err := log.Streams.EnsureRun(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	tails := map[string]uint64{}
	state := func(typ events.Type, entity string, data any) {
		e, err := events.New("r", typ, entity, fmt.Sprint(tails[typ.Kind()+entity]), data)
		if err != nil {
			t.Fatal(err)
		}
		e.Prev = tails[typ.Kind()+entity]
		stored, _, err := log.Appender.Append(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		tails[typ.Kind()+entity] = stored.Seq
	}
	blob := func(text string) storage.Ref {
		ref, err := storage.PutBlob(t.Context(), log.Store(), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	named := func(prefix string) storage.Ref {
		ref, err := storage.PutNamed(t.Context(), log.Store(), prefix, "arrow", []byte(prefix))
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	cfg := runfile.DefaultRunConfig()
	cfg.Tasks = []runfile.TaskSpec{{Name: "t", Snapshot: blob("snapshot"), Tests: blob("tests")}}
	state(events.RunOpenedType, "r", events.RunOpened{Config: cfg})
	state(events.RolloutStartedType, "g000001-0", events.RolloutStarted{})
	state(events.TurnSampledType, "g000001-0", events.TurnSampled{Content: strings.Repeat("large", 40<<10)})
	workspace, verdict := blob("workspace"), blob("the verifier's output")
	state(events.ToolsCompletedType, "g000001-0", events.ToolsCompleted{
		Results: []events.ToolResult{{Content: strings.Repeat("and larger", 40<<10)}}, Workspace: &workspace,
	})
	state(events.RolloutFinishedType, "g000001-0", events.RolloutFinished{Trajectory: named(
		"runs/r/trajectories/g000001-0"), Workspace: &workspace})
	state(events.RolloutScoredType, "g000001-0", events.RolloutScored{Log: &verdict,
		Trajectory: named("runs/r/trajectories/g000001-0")})
	state(events.BatchReadyType, "trainer", events.BatchReady{Step: 1,
		Files: []storage.Ref{named("runs/r/batches/trainer/1"), named("runs/r/batches/trainer/2")}})
	manifest, err := json.Marshal(map[string]any{"files": []any{map[string]any{"name": "model",
		"ref": "weights/p/model", "sha256": storage.Digest([]byte("w")), "size": 1}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Store().Put(t.Context(), "weights/p/model", []byte("w")); err != nil {
		t.Fatal(err)
	}
	state(events.WeightsPublishedType, "p", events.WeightsPublished{Policy: "p", Version: 1,
		Manifest: blob(string(manifest))})
	sealed, err := log.Appender.Seal(t.Context(), "r", true)
	if err != nil || len(sealed) != 1 {
		t.Fatal(sealed, err)
	}
	return log, sealed
}

// TestBrokenObjects: whatever byte of whatever object changes, verification names the
// object and who refers to it.
func TestBrokenObjects(t *testing.T) {
	log, sealed := recordedObjects(t)
	verify := func() recovery.ObjectsFound {
		o, err := recovery.VerifyObjects(t.Context(), log.Store(), "r", sealed, nil)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	var keys []string
	for info, err := range log.Store().List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if info.Key != sealed[0].Segment.Key {
			keys = append(keys, info.Key)
		}
	}
	if o := verify(); len(o.Findings) > 0 || o.Count != len(keys) || len(keys) != 11 {
		t.Fatalf("%+v of %d objects: %v", o, len(keys), keys)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, key := range keys {
		whole, err := log.Store().Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		write := func(data []byte) {
			if err := log.Store().Put(t.Context(), key, data); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			at := rng.IntN(len(whole))
			broken := slices.Clone(whole)
			broken[at] ^= 1 << rng.IntN(8)
			write(broken)
			named := slices.ContainsFunc(verify().Findings,
				func(f string) bool { return strings.Contains(f, key) && strings.Contains(f, "sequence") })
			if !named {
				t.Errorf("byte %d of %s: %v", at, key, verify().Findings)
			}
		}
		write(whole[:len(whole)-1])
		if o := verify(); len(o.Findings) == 0 {
			t.Errorf("%s is a byte shorter and nobody noticed", key)
		}
		if err := log.Store().Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if o := verify(); len(o.Findings) == 0 || !strings.Contains(o.Findings[0], key) {
			t.Errorf("without %s: %v", key, o.Findings)
		}
		write(whole)
	}
	if o := verify(); len(o.Findings) > 0 {
		t.Errorf("all is whole again: %v", o.Findings)
	}
}
