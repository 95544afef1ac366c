package storage_test

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/rondo-rl/rondo/storage"
)

// TestReasoningColumn: reasoning goes through a file. A trajectory without any is written as before there was such a column, and read.
func TestReasoningColumn(t *testing.T) {
	before := makeTrajectory(1, 4)
	old := encodeTrajectory(t, before)
	with := makeTrajectory(1, 4)
	with.Messages[1].Reasoning = "Is it the loop?\nYes."
	file := encodeTrajectory(t, with)
	for name, c := range map[string]struct {
		file   []byte
		want   *storage.Trajectory
		column bool
	}{"with": {file, with, true}, "without": {old, before, false}} {
		got, err := storage.DecodeTrajectory(c.file)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v: %v", name, got, err)
		}
		if there := bytes.Contains(c.file, []byte("reasoning")); there != c.column {
			t.Errorf("%s: a column of reasoning: %v", name, there)
		}
	}
	for i := 0; i < len(file); i += 31 { // no damage is taken for the other form
		damaged := bytes.Clone(file)
		damaged[i] ^= 0x41
		if got, err := storage.DecodeTrajectory(damaged); err == nil && !reflect.DeepEqual(got, with) {
			t.Fatalf("byte %d damaged: read as another trajectory", i)
		}
	}
}
