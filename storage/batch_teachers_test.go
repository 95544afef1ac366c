package storage_test

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/storage"
)

// taught is a batch with the log-probabilities of two teachers.
func taught(samples, tokens int) *storage.Batch {
	b := makeBatch(samples, tokens)
	b.Teachers = []string{"reference", "big-2"}
	for i := range b.Samples {
		s := &b.Samples[i]
		for t := range b.Teachers {
			values := make([]float32, len(s.Tokens))
			for k := range values {
				values[k] = -float32(t+1) * float32(k)
			}
			s.TeacherLogprobs = append(s.TeacherLogprobs, values)
		}
	}
	return b
}

// TestTeacherColumns: each teacher's log-probabilities go through a file, in a column of their own.
// A batch without teachers has nothing of them.
func TestTeacherColumns(t *testing.T) {
	b := taught(4, 5)
	file := encodeBatch(t, b)
	back, err := storage.DecodeBatch(file)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, b) {
		t.Errorf("%+v became %+v", b, back)
	}
	schema := readSchema(t, file)
	if names := schema.Fields(); names[len(names)-2].Name != "logprobs_reference" ||
		names[len(names)-1].Name != "logprobs_big-2" {
		t.Errorf("the last columns are %v", names[len(names)-2:])
	}
	plain := encodeBatch(t, makeBatch(4, 5))
	if bytes.Contains(plain, []byte("teacher")) || bytes.Contains(plain, []byte("logprobs_")) {
		t.Error("a batch without teachers has something of them")
	}
	for name, change := range map[string]func(*storage.Batch){
		"shorter than its tokens": func(
			b *storage.Batch) {
			b.Samples[1].TeacherLogprobs[1] = b.Samples[1].TeacherLogprobs[1][1:]
		},
		"of one teacher too few": func(
			b *storage.Batch) {
			b.Samples[3].TeacherLogprobs = b.Samples[3].TeacherLogprobs[:1]
		},
		"above 0":   func(b *storage.Batch) { b.Samples[0].TeacherLogprobs[0][2] = 0.5 },
		"no number": func(b *storage.Batch) { b.Samples[0].TeacherLogprobs[0][2] = float32(math.NaN()) },
		"infinite": func(b *storage.Batch) {
			b.Samples[0].TeacherLogprobs[0][2] = float32(
				math.Inf(-1))
		},
		"of a teacher twice":     func(b *storage.Batch) { b.Teachers[1] = "reference" },
		"of a teacher named a,b": func(b *storage.Batch) { b.Teachers[1] = "a,b" },
	} {
		t.Run(name, func(t *testing.T) {
			b := taught(4, 5)
			change(b)
			if _, err := storage.EncodeBatch(b); err == nil || !strings.Contains(err.Error(), "teacher") {
				t.Errorf("written: %v", err)
			}
		})
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
