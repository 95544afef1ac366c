package storage_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/storage"
)

// hintedBatch has a teacher of all tokens, and one that takes the judge's hints. Every second
// sample has a hint about its last two tokens.
func hintedBatch() *storage.Batch {
	b := taught(4, 5)
	b.Hinter, b.Hinted = "judge", []string{"big-2"}
	for i := range b.Samples {
		s := &b.Samples[i]
		for k := range s.LossMask {
			s.LossMask[k] = k >= 2
			s.TeacherLogprobs[1][k] = float32(math.NaN())
		}
		s.RolloutSampled = int32(len(s.Tokens))
		s.PolicyVersions, s.Turns = nil, nil
		if i%2 == 0 {
			s.Hints = []storage.Hint{{Turn: 1, Start: 3, Length: 2, At: 2, Text: "Look.", Tokens: []int32{8, 9}}}
			s.TeacherLogprobs[1][3], s.TeacherLogprobs[1][4] = -0.5, -1.5
		}
	}
	b.Whole = storage.Count(b.Samples)
	return b
}

// TestHintColumns: hints and what their teacher says of their tokens go through a file; of all
// other tokens the teacher says nothing.
func TestHintColumns(t *testing.T) {
	b := hintedBatch()
	file := encodeBatch(t, b)
	back, err := storage.DecodeBatch(file)
	if err != nil {
		t.Fatal(err)
	}
	if again := encodeBatch(t, back); !bytes.Equal(again, file) || back.Hinter != "judge" ||
		back.Samples[2].Hints[0].Text != "Look." || back.Samples[2].TeacherLogprobs[1][4] != -1.5 {
		t.Errorf("%+v became %+v", b, back)
	}
	schema := readSchema(t, file)
	if len(schema.FieldIndices("hints")) != 1 {
		t.Errorf("columns %v", schema.Fields())
	}
	for want, change := range map[string]func(*storage.Batch){
		"teacher big-2":     func(b *storage.Batch) { b.Samples[0].TeacherLogprobs[1][2] = -1 },
		"teacher reference": func(b *storage.Batch) { b.Samples[0].TeacherLogprobs[0][2] = float32(math.NaN()) },
		"hint 0 (start 1":   func(b *storage.Batch) { b.Samples[0].Hints[0].Start = 1 },
		"hint 0 (start 4":   func(b *storage.Batch) { b.Samples[0].Hints[0].Start = 4 },
		"at 4":              func(b *storage.Batch) { b.Samples[0].Hints[0].At = 4 },
		"hint 1": func(b *storage.Batch) {
			b.Samples[0].Hints = append(b.Samples[0].Hints,
				b.Samples[0].Hints...)
		},
		"the id -1":            func(b *storage.Batch) { b.Samples[0].Hints[0].Tokens[0] = -1 },
		"take hints of nobody": func(b *storage.Batch) { b.Hinter = "" },
		"hinter \"a b\"":       func(b *storage.Batch) { b.Hinter = "a b" },
		"teacher \"other\"":    func(b *storage.Batch) { b.Hinted = []string{"other"} },
		"1 hints of \"\"":      func(b *storage.Batch) { b.Hinter, b.Hinted, b.Teachers = "", nil, nil },
	} {
		b := hintedBatch()
		change(b)
		if _, err := storage.EncodeBatch(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for i := 0; i < len(file); i += 13 {
		damaged := bytes.Clone(file)
		damaged[i] ^= 0x10
		if _, err := storage.DecodeBatch(damaged); err != nil && !errors.Is(err, storage.ErrCorrupt) &&
			!errors.Is(err, storage.ErrTooLarge) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
	}
}
