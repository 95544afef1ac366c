package storage_test

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/rondo-rl/rondo/storage"
)

func makeRecords(n int) (records []storage.Record) {
	for i := range n {
		records = append(records, storage.Record{
			Sequence: int64(7 + i), Time: time.Unix(1_700_000_000, int64(i)).UTC(), Subject: "rondo.v1.r.run.r.opened",
			Type: "run.opened", ID: "r/run.r/opened/0",
			Header: map[string][]string{"ce-id": {"x"}, "Twice": {"a", "b"}}, Data: []byte{0xff, 0, byte(i)},
		})
	}
	return records
}

// largeRecords are of several parts.
func largeRecords() []storage.Record {
	random := rand.NewChaCha8([32]byte{1})
	records := makeRecords(40)
	digits := make([]byte, 350<<10)
	for i := range records {
		random.Read(digits)
		records[i].Data = hex.AppendEncode(nil, digits)
	}
	return records
}

func writeSegment(records []storage.Record) ([]byte, error) {
	w := storage.NewSegmentWriter("r", strings.Repeat("a", 64))
	for _, r := range records {
		if err := w.Add(r); err != nil {
			return nil, err
		}
	}
	return w.Finish()
}

func encodeSegment(t testing.TB, records []storage.Record) []byte {
	t.Helper()
	file, err := writeSegment(records)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func readSegment(file []byte) (s *storage.Segment, records []storage.Record, err error) {
	if s, err = storage.OpenSegment(file); err != nil {
		return nil, nil, err
	}
	for r, err := range s.Records() {
		if err != nil {
			return nil, nil, err
		}
		records = append(records, r)
	}
	return s, records, nil
}

func TestSegment(t *testing.T) {
	want := makeRecords(5)
	file := encodeSegment(t, want)
	s, got, err := readSegment(file)
	if err != nil || !reflect.DeepEqual(got, want) || s.Run != "r" || s.Previous != strings.Repeat("a", 64) ||
		s.First != 7 || s.Last != 11 || s.Parts() != 1 || s.LastOf(0) != 11 {
		t.Fatalf("%v: %+v %+v", err, s, got)
	}
	for name, change := range map[string]func([]storage.Record) []storage.Record{
		"nothing":         func([]storage.Record) []storage.Record { return nil },
		"a gap":           func(r []storage.Record) []storage.Record { r[3].Sequence++; return r },
		"a wrong order":   func(r []storage.Record) []storage.Record { r[0], r[1] = r[1], r[0]; return r },
		"a sequence of 0": func(r []storage.Record) []storage.Record { r[0].Sequence = 0; return r[:1] },
		"endless headers": func(r []storage.Record) []storage.Record {
			r[0].Header["x"] = []string{strings.Repeat("x", 33<<20)}
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := writeSegment(change(makeRecords(5))); err == nil {
				t.Errorf("%s was written", name)
			}
		})
	}
	long := storage.NewSegmentWriter(strings.Repeat("r", 65<<10), "")
	if err := long.Add(want[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := long.Finish(); err == nil {
		t.Error("an impossible run was written")
	}
	trajectory := encodeTrajectory(t, makeTrajectory(2, 3))
	if _, err := storage.OpenSegment(trajectory); err == nil || !strings.Contains(err.Error(), "trajectory") {
		t.Errorf("a trajectory was read as a segment: %v", err)
	}
	unnoticed(t, file, want, 1)
}

// unnoticed flips bits of a file's bytes, a stride apart: what is not
// refused holds the same records.
func unnoticed(t *testing.T, file []byte, want []storage.Record, stride int) {
	t.Helper()
	for at := 0; at < len(file); at += stride {
		file[at] ^= 0x10
		_, got, err := readSegment(file)
		file[at] ^= 0x10
		if err != nil {
			wantRefused(t, "a flipped bit", err)
		} else if !reflect.DeepEqual(got, want) {
			t.Errorf("byte %d of %d changes the segment unnoticed", at, len(file))
		}
	}
}

// TestSegmentOfParts: a writer says how large the file becomes before it is made, and a reader
// takes the parts one by one.
func TestSegmentOfParts(t *testing.T) {
	want := largeRecords()
	w := storage.NewSegmentWriter("r", "")
	for _, r := range want {
		if err := w.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	stored, full := w.Stored(), w.Parts()
	file, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	s, got, err := readSegment(file)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%v: %d records", err, len(got))
	}
	if full < 3 || s.Parts() != full+1 || w.Len() != len(want) || stored >= len(file) ||
		stored < len(file)*full/(full+2) {
		t.Errorf("%d full parts of %d bytes become a file of %d parts and %d bytes", full, stored, s.Parts(), len(file))
	}
	for i := range s.Parts() {
		records, err := s.Part(i)
		if err != nil || records[len(records)-1].Sequence != s.LastOf(i) {
			t.Errorf("part %d: %v", i, err)
		}
	}
	reader, err := ipc.NewFileReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	rows := int64(0)
	for i := range reader.NumRecords() {
		batch, err := reader.RecordBatchAt(i)
		if err != nil {
			t.Fatal(err)
		}
		rows += batch.NumRows()
		batch.Release()
	}
	if rows != int64(len(want)) {
		t.Errorf("the Arrow library reads %d rows", rows)
	}
	unnoticed(t, file, want, len(file)/12)
}

func FuzzOpenSegment(f *testing.F) {
	f.Add([]byte{})
	f.Add(encodeSegment(f, makeRecords(1)))
	f.Add(encodeSegment(f, makeRecords(4)))
	f.Fuzz(func(t *testing.T, file []byte) {
		_, records, err := readSegment(file)
		if err != nil {
			wantRefused(t, "fuzzed file", err)
			return
		}
		again, err := writeSegment(records)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if _, got, err := readSegment(again); err != nil || !reflect.DeepEqual(got, records) {
			t.Fatalf("round trip of what was read: %v", err)
		}
	})
}
