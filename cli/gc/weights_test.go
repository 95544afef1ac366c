package gc

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// TestGCCollectsWeights of all policies, and lets what says so be.
func TestGCCollectsWeights(t *testing.T) {
	r := &stored{clitest.NewRecorded(t)}
	servicetest.CloseRun(t, r.Log, "first")
	files := map[string]string{}
	for _, policy := range []string{"a", "b"} {
		for version := int64(1); version <= 4; version++ {
			var file bytes.Buffer
			if err := safetensors.Write(&file, []safetensors.Data{safetensors.NewF32("w", []int64{1},
				[]float32{float32(version)})}, nil); err != nil {
				t.Fatal(err)
			}
			data := file.Bytes()
			if _, err := weights.Publish(t.Context(), r.Log.Store(), policy, version,
				weights.Content{Name: "m.safetensors", Data: data}); err != nil {
				t.Fatal(err)
			}
			files[weights.FileKey(policy, storage.Digest(data))] = map[bool]string{true: "goes",
				false: "stays"}[version < 3]
		}
	}
	r.age()
	args := strings.Fields("--weights-older-than 24h --keep-weights 2")
	if dry := r.gc(args...); len(dry.Weights) != 2 || dry.Weights[0].Objects != 2 || dry.Weights[1].Deleted != 0 {
		t.Errorf("a dry run: %+v", dry.Weights)
	}
	if done := r.gc(append(args, "--delete")...); done.Weights[0].Deleted != 2 || done.Weights[1].Deleted != 2 {
		t.Errorf("%+v", done.Weights)
	}
	r.age()
	before := r.objects()
	r.gc("--delete")
	if after := r.objects(); len(after) != len(before) {
		t.Errorf("a collection behind it takes %d objects to %d", len(before), len(after))
	}
	for key, want := range files {
		if _, there := r.objects()[key]; there != (want == "stays") {
			t.Errorf("%s %s, and is there: %t", key, want, there)
		}
	}
	for _, bad := range []string{"--weights-older-than 1h", "--weights-older-than 24h --keep-weights 1"} {
		if output, err := clitest.Run(t, New, append([]string{"gc", "--dir", r.Dir},
			strings.Fields(bad)...)...); err == nil {
			t.Errorf("%s: %s", bad, output)
		}
	}
}
