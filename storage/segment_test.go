package storage_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/storage"
)

func makeSegment(n int) *storage.Segment {
	s := &storage.Segment{Run: "r", Previous: strings.Repeat("a", 64)}
	for i := range n {
		s.Records = append(s.Records, storage.Record{
			Sequence: int64(7 + i), Time: time.Unix(1_700_000_000, int64(i)).UTC(), Subject: "rondo.v1.r.run.r.opened", Type: "run.opened", ID: "r/run.r/opened/0",
			Header: map[string][]string{"ce-id": {"x"}, "Twice": {"a", "b"}}, Data: []byte{0xff, 0, byte(i)},
		})
	}
	return s
}

func encodeSegment(t testing.TB, s *storage.Segment) []byte {
	t.Helper()
	file, err := storage.EncodeSegment(s)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestSegment(t *testing.T) {
	want := makeSegment(5)
	file := encodeSegment(t, want)
	got, err := storage.DecodeSegment(file)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%v: %+v", err, got)
	}
	if string(encodeSegment(t, got)) != string(file) {
		t.Error("the same records give other bytes")
	}
	for name, change := range map[string]func(*storage.Segment){
		"nothing":           func(s *storage.Segment) { s.Records = nil },
		"a gap":             func(s *storage.Segment) { s.Records[3].Sequence++ },
		"a wrong order":     func(s *storage.Segment) { s.Records[0], s.Records[1] = s.Records[1], s.Records[0] },
		"a sequence of 0":   func(s *storage.Segment) { s.Records = s.Records[:1]; s.Records[0].Sequence = 0 },
		"endless headers":   func(s *storage.Segment) { s.Records[0].Header["x"] = []string{strings.Repeat("x", 33<<20)} },
		"an impossible run": func(s *storage.Segment) { s.Run = strings.Repeat("r", 17<<10) },
	} {
		s := makeSegment(5)
		change(s)
		if _, err := storage.EncodeSegment(s); err == nil {
			t.Errorf("%s was encoded", name)
		}
	}
	trajectory := encodeTrajectory(t, makeTrajectory(2, 3))
	if _, err := storage.DecodeSegment(trajectory); err == nil || !strings.Contains(err.Error(), "trajectory") {
		t.Errorf("a trajectory was read as a segment: %v", err)
	}
	for at := range file {
		flipped := append([]byte(nil), file...)
		flipped[at] ^= 0x10
		if got, err := storage.DecodeSegment(flipped); err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("byte %d of %d changes the segment unnoticed", at, len(file))
		}
	}
}

func FuzzDecodeSegment(f *testing.F) {
	f.Add([]byte{})
	f.Add(encodeSegment(f, makeSegment(1)))
	f.Add(encodeSegment(f, makeSegment(4)))
	f.Fuzz(func(t *testing.T, file []byte) {
		segment, err := storage.DecodeSegment(file)
		if err != nil {
			wantRefused(t, "fuzzed file", err)
			return
		}
		if _, err := storage.EncodeSegment(segment); err != nil {
			t.Fatalf("what was decoded does not encode: %v", err)
		}
	})
}
