package storage_test

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/rondo-rl/rondo/storage"
)

// TestReasoningColumn: reasoning goes through a file.
func TestReasoningColumn(t *testing.T) {
	want := makeTrajectory(1, 4)
	want.Messages[1].Reasoning = "Is it the loop?\nYes."
	file := encodeTrajectory(t, want)
	if got, err := storage.DecodeTrajectory(file); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v: %v", got, err)
	}
	for i := 0; i < len(file); i += 31 {
		damaged := bytes.Clone(file)
		damaged[i] ^= 0x41
		if got, err := storage.DecodeTrajectory(damaged); err == nil && !reflect.DeepEqual(got, want) {
			t.Fatalf("byte %d damaged: read as another trajectory", i)
		}
	}
}
