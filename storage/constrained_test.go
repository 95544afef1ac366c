package storage_test

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/rondo-rl/rondo/storage"
)

// TestConstrainedFiles: the marks of constrained messages and tokens go through files. Batch files
// without any have no column of them.
func TestConstrainedFiles(t *testing.T) {
	tr := &storage.Trajectory{Run: "r", Group: "g", Rollout: "g-0", Task: "t", StopReason: "finished",
		Messages: []storage.Message{
			{Role: "user", TokenIDs: []int32{1, 2}, Logprobs: make([]float32, 2),
				LossMask: make([]bool, 2), PolicyVersion: -1},
			{Index: 1, Role: "assistant", TokenIDs: []int32{3}, Logprobs: []float32{-1}, LossMask: []bool{true}},
			{Index: 2, Turn: 1, Role: "assistant", Constrained: true, TokenIDs: []int32{4, 5},
				Logprobs: []float32{0, -2},
				LossMask: []bool{false, true}},
			{Index: 3, Turn: 2, Role: "assistant", TokenIDs: []int32{6}, Logprobs: []float32{-3},
				LossMask: []bool{true}},
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
	if s := samples[0]; !reflect.DeepEqual(s.LossMask, []bool{false, false, true, false, false, true}) ||
		s.SamplerLogprobs[4] != 0 || s.RolloutSampled != 2 {
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

// TestMaskedFiles: which segments are not trained on goes through files, with the rule that says
// so. No token of them counts, and those of the others do as ever.
func TestMaskedFiles(t *testing.T) {
	said := func(index int, mask bool) storage.Message {
		return storage.Message{Index: int32(index), Turn: int32(index), Segment: int32(index), Role: "assistant",
			TokenIDs: []int32{7, 8}, Logprobs: []float32{0, -1}, LossMask: []bool{false, mask}}
	}
	tr := &storage.Trajectory{Run: "r", Group: "g", Rollout: "g-0", Task: "t", StopReason: "finished",
		Masked:   map[int32]string{0: "titles", 2: "others"},
		Messages: []storage.Message{said(0, false), said(1, true), said(2, false), said(3, false)}}
	back, err := storage.DecodeTrajectory(encodeTrajectory(t, tr))
	if err != nil || !reflect.DeepEqual(back, tr) {
		t.Fatalf("%+v became %+v: %v", tr, back, err)
	}
	kept, left := storage.Trained(back.Samples())
	if want := map[int]string{0: "conversations: titles", 2: "conversations: others",
		3: storage.LeftUnsampled}; !reflect.DeepEqual(kept, []int{1}) || !reflect.DeepEqual(left, want) {
		t.Errorf("kept %v, left %v", kept, left)
	}
	for i := range 10_000 {
		tr.Masked[int32(1000+i)] = "others"
	}
	if back, err := storage.DecodeTrajectory(encodeTrajectory(t, tr)); err != nil || !reflect.DeepEqual(back, tr) {
		t.Errorf("a file with 10,000 masked segments: %v", err)
	}
	tr.Messages[2].LossMask[1] = true
	if _, err := storage.EncodeTrajectory(tr); err == nil {
		t.Error("a file that trains on what it says is masked is written")
	}
	tr.Messages[2].LossMask[1], tr.Masked = false, nil
	if bytes.Contains(encodeTrajectory(t, tr), []byte("masked")) {
		t.Error("a file without any has something of them")
	}
}
