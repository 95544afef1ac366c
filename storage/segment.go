package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// SegmentSchema is the version of the columns and metadata of log segments.
const SegmentSchema = "1"

const segmentKind = "log"

// Segment is a part of a run's log as it is archived: its events from one sequence to another, without gaps.
type Segment struct {
	Run string
	// Previous is the SHA-256 of the file before this one, "" for the first.
	Previous string
	Records  []Record
}

// Record is one message of the log.
type Record struct {
	Sequence int64     // in the stream
	Time     time.Time // when the server stored it
	Subject  string
	Type, ID string              // of the event; "" for a message that is none
	Header   map[string][]string // as the message has it
	Data     []byte
}

type recordRow struct {
	header string // as JSON
	Record
}

var recordColumns = []column[recordRow]{
	int64Column("sequence", func(r *recordRow) *int64 { return &r.Sequence }),
	timeColumn("time", func(r *recordRow) *time.Time { return &r.Time }),
	stringColumn("subject", func(r *recordRow) *string { return &r.Subject }),
	stringColumn("type", func(r *recordRow) *string { return &r.Type }),
	stringColumn("id", func(r *recordRow) *string { return &r.ID }),
	stringColumn("headers", func(r *recordRow) *string { return &r.header }),
	binaryColumn("data", func(r *recordRow) *[]byte { return &r.Data }),
}

// EncodeSegment makes a segment file: Arrow IPC file format, zstd, one record batch; schemas/arrow.md describes it. The
// same records give the same bytes.
func EncodeSegment(s *Segment) ([]byte, error) {
	file, err := encodeSegment(s)
	if err != nil {
		return nil, fmt.Errorf("encode segment of run %s: %w", s.Run, err)
	}
	return file, nil
}

func encodeSegment(s *Segment) ([]byte, error) {
	meta, err := s.metadata()
	if err != nil {
		return nil, err
	}
	rows, size := make([]recordRow, len(s.Records)), 0
	for i, r := range s.Records {
		header, err := json.Marshal(r.Header)
		if err != nil {
			return nil, err
		}
		if size += len(header); size > maxArrowJSON {
			return nil, fmt.Errorf("%w: more than %d bytes of headers", ErrTooLarge, maxArrowJSON)
		}
		rows[i] = recordRow{header: string(header), Record: r}
	}
	return writeArrow(recordColumns, meta, rows)
}

// metadata also checks that the sequences have no gaps.
func (s *Segment) metadata() (*metadata, error) {
	if len(s.Records) == 0 {
		return nil, errors.New("it has no events")
	}
	first := s.Records[0].Sequence
	for i := range s.Records {
		if at := first + int64(i); s.Records[i].Sequence != at || at < 1 {
			return nil, fmt.Errorf("record %d has the sequence %d instead of %d", i, s.Records[i].Sequence, at)
		}
	}
	meta := &metadata{}
	meta.add("kind", segmentKind)
	meta.add("schema_version", SegmentSchema)
	meta.addText("run_id", s.Run)
	meta.addText("previous", s.Previous)
	meta.addInt("first_sequence", first)
	meta.addInt("last_sequence", first+int64(len(s.Records))-1)
	return meta, nil
}

// DecodeSegment reads a segment file that may come from anywhere. Whatever the bytes, it does not panic and takes bounded
// memory; the error is an ErrCorrupt or an ErrTooLarge.
func DecodeSegment(file []byte) (*Segment, error) {
	s, err := decodeSegment(file)
	if err != nil {
		return nil, fmt.Errorf("decode segment file: %w", err)
	}
	return s, nil
}

func decodeSegment(file []byte) (*Segment, error) {
	meta, rows, err := readArrow(recordColumns, segmentKind, SegmentSchema, file, func(n int) []recordRow { return make([]recordRow, n) })
	if err != nil {
		return nil, err
	}
	if err := meta.require("run_id", "previous", "first_sequence"); err != nil {
		return nil, err
	}
	s := &Segment{Run: meta["run_id"], Previous: meta["previous"], Records: make([]Record, len(rows))}
	if _, err := strconv.ParseInt(meta["first_sequence"], 10, 64); err != nil {
		return nil, fmt.Errorf("%w: metadata: %w", ErrCorrupt, err)
	}
	size := 0
	for i, row := range rows {
		if size += len(row.header); size > maxArrowJSON {
			return nil, fmt.Errorf("%w: more than %d bytes of headers", ErrTooLarge, maxArrowJSON)
		}
		s.Records[i] = row.Record
		if s.Records[i].Header, err = parseHeader(row.header); err != nil {
			return nil, fmt.Errorf("%w: headers of record %d: %w", ErrCorrupt, i, err)
		}
	}
	computed, err := s.metadata()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return s, meta.matches(computed, nil)
}
