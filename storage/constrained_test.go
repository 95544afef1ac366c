package storage_test

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/rondo-rl/rondo/storage"
)

// TestConstrainedFiles: the marks of constrained messages and tokens go through files. Batch files without any have no column of them.
func TestConstrainedFiles(t *testing.T) {
	tr := &storage.Trajectory{Run: "r", Group: "g", Rollout: "g-0", Task: "t", StopReason: "finished", Messages: []storage.Message{
		{Role: "user", TokenIDs: []int32{1, 2}, Logprobs: make([]float32, 2), LossMask: make([]bool, 2), PolicyVersion: -1},
		{Index: 1, Role: "assistant", TokenIDs: []int32{3}, Logprobs: []float32{-1}, LossMask: []bool{true}},
		{Index: 2, Turn: 1, Role: "assistant", Constrained: true, TokenIDs: []int32{4, 5}, Logprobs: []float32{0, -2}, LossMask: []bool{false, true}},
		{Index: 3, Turn: 2, Role: "assistant", TokenIDs: []int32{6}, Logprobs: []float32{-3}, LossMask: []bool{true}},
	}}
	file := encodeTrajectory(t, tr)
	back, err := storage.DecodeTrajectory(file)
	if err != nil || !reflect.DeepEqual(back, tr) {
		t.Fatalf("%+v became %+v: %v", tr, back, err)
	}
	samples := back.Samples()
	if want := []bool{false, false, false, false, true, false}; !reflect.DeepEqual(samples[0].Constrained, want) {
		t.Errorf("constrained: %v", samples[0].Constrained)
	}
	storage.MaskConstrained(samples)
	if s := samples[0]; !reflect.DeepEqual(s.LossMask, []bool{false, false, true, false, false, true}) || s.SamplerLogprobs[4] != 0 || s.RolloutSampled != 2 {
		t.Errorf("masked: %+v", s)
	}
	b := taught(4, 5)
	b.Samples[2].Constrained = []bool{false, false, false, true, true}
	b.Samples[2].LossMask[4] = false
	written := encodeBatch(t, b)
	read, err := storage.DecodeBatch(written)
	if err != nil || !reflect.DeepEqual(read, b) {
		t.Fatalf("%+v became %+v: %v", b, read, err)
	}
	if bytes.Contains(encodeBatch(t, taught(4, 5)), []byte("constrained")) {
		t.Error("a file without any has something of them")
	}
	b.Samples[2].Constrained = []bool{true}
	if _, err := storage.EncodeBatch(b); err == nil {
		t.Error("marks of fewer tokens are written")
	}
}
