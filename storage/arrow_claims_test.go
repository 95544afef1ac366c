package storage

import (
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	flatbuffers "github.com/google/flatbuffers/go"
)

// TestFalseClaims changes, one at a time, how many entries and nulls a file claims for each array,
// and where it says that each buffer lies. The decoder refuses it before anything breaks, or finds
// the same content; only a buffer that takes the place of another that would fit is for the
// checksum to find, which is left out here, as in files of other writers.
func TestFalseClaims(t *testing.T) {
	turn := int32(0)
	batch := &Batch{Run: "r", Feed: "f", Ranks: 1, Whole: Counts{Samples: 2, SampledTokens: 5, Rollouts: 1},
		Samples: []Sample{
			{Run: "r", Rollout: "x-0", SamplesInRollout: 2, Tokens: []int32{1, 2, 3},
				LossMask:        []bool{true, false, true},
				SamplerLogprobs: []float32{-1, 0, -2},
				Advantages:      []float32{1, 0, 1}, RolloutSampled: 5, MicroBatch: -1,
				Turns:          []TurnSpan{{Length: 1}, {Start: 2, Length: 1, Turn: 1}},
				PolicyVersions: []VersionSegment{{Length: 1}, {Start: 2, Length: 1, Version: 4, Stale: true}},
				Annotations:    []Annotation{{Turn: &turn, Length: 1, Text: "so"}}},
			{Run: "r", Rollout: "x-0", SampleIndex: 1, SamplesInRollout: 2, Tokens: []int32{7, 8, 9},
				LossMask: []bool{true, true, true}, SamplerLogprobs: []float32{-1, -3, -2},
				Advantages: []float32{1, 1, 1}, RolloutSampled: 5, MicroBatch: -1},
		}}
	trajectory := &Trajectory{Run: "r", Rollout: "x-0", Messages: []Message{
		{Role: "user", Content: "hello", TokenIDs: []int32{1}, Logprobs: []float32{0}, LossMask: []bool{false},
			PolicyVersion: -1, StartedAt: time.Unix(5, 7).UTC()},
		{Index: 1, Role: "assistant", Content: "hi", TokenIDs: []int32{2, 3}, Logprobs: []float32{-1, -2},
			LossMask: []bool{true, true}},
	}}
	versioned := *trajectory
	versioned.Messages = slices.Clone(trajectory.Messages)
	versioned.Messages[1].Versions = []VersionSegment{{Length: 1}, {Start: 1, Length: 1, Version: 3}}
	claims(t, encoded(&versioned, EncodeTrajectory), func(file []byte) (any, error) { return DecodeTrajectory(file) },
		&versioned)
	claims(t, encoded(batch, EncodeBatch), func(file []byte) (any, error) { return DecodeBatch(file) }, batch)
	claims(t, encoded(trajectory, EncodeTrajectory), func(file []byte) (any, error) { return DecodeTrajectory(file) },
		trajectory)
}

func encoded[T any](content T, encode func(T) ([]byte, error)) []byte {
	file, err := encode(content)
	if err != nil {
		panic(err)
	}
	// A key of another name stands for no checksum.
	for at := 0; ; at++ {
		next := slices.Index(file[at:], 'c')
		if next < 0 {
			return file
		}
		if at += next; string(file[at:min(at+8, len(file))]) == "checksum" {
			file[at] = 'C'
		}
	}
}

func claims(t *testing.T, file []byte, decode func([]byte) (any, error), want any) {
	t.Helper()
	if got, err := decode(file); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("as it was written: %v", err)
	}
	batch, _ := batchOf(file, 0)
	refused := 0
	for _, slot := range []flatbuffers.VOffsetT{batchNodes, batchBuffers} {
		start := int(vectorStart(batch, slot))
		for at := start; at < start+16*vectorLen(batch, slot); at += 8 {
			old := binary.LittleEndian.Uint64(batch.Bytes[at:])
			for _, value := range []uint64{0, 1, old - 1, old + 1, old + 8, 2 * old, math.MaxInt32, 1 << 40,
				math.MaxUint64, math.MaxInt64} {
				binary.LittleEndian.PutUint64(batch.Bytes[at:], value)
				got, err := decode(file)
				switch {
				case errors.Is(err, ErrCorrupt) && !strings.Contains(err.Error(), "runtime error"):
					refused++
				case err != nil:
					t.Errorf("slot %d at %d: %d instead of %d: %v", slot, at, value, old, err)
				case slot == batchNodes && !reflect.DeepEqual(got, want):
					t.Errorf("slot %d at %d: %d instead of %d changes the content unnoticed", slot, at, value, old)
				}
			}
			binary.LittleEndian.PutUint64(batch.Bytes[at:], old)
		}
	}
	if refused < 200 {
		t.Errorf("only %d false claims were refused", refused)
	}
}
