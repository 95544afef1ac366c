package storage

import (
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// SegmentSchema is the version of the columns and metadata of log segments.
const SegmentSchema = "1"

const segmentKind = "log"

// maxParts bounds the record batches of a segment.
const maxParts = 256

// Segment is a part of a run's log as it is archived: its events from one sequence to another,
// without gaps. Its file holds them in parts, record batches that are read one by one, so that a
// reader needs memory for the file and a part.
type Segment struct {
	Run string
	// Previous is the SHA-256 of the file before this one, "" for the first.
	Previous    string
	First, Last int64 // sequences

	file   []byte
	schema *arrow.Schema
	starts []int64  // the first sequence of each part, and the one behind the last
	sums   []string // of the parts; nil: not given
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

// OpenSegment reads what a segment file says of itself; the file may come from anywhere and must
// not be changed as long as the segment is read. Whatever the bytes, neither it nor [Segment.Part]
// panics, and both take bounded memory; the error is an ErrCorrupt or an ErrTooLarge.
func OpenSegment(file []byte) (*Segment, error) {
	s, err := openSegment(file)
	if err != nil {
		return nil, fmt.Errorf("open segment file: %w", err)
	}
	return s, nil
}

func openSegment(file []byte) (s *Segment, err error) {
	defer invalid(&err)
	schema, err := openArrow(recordColumns, segmentKind, file, maxParts, SegmentSchema)
	if err != nil {
		return nil, err
	}
	meta := annotations(schema.Metadata().ToMap())
	if err := meta.require("run_id", "previous", "first_sequence", "last_sequence"); err != nil {
		return nil, err
	}
	s = &Segment{Run: meta["run_id"], Previous: meta["previous"], file: file, schema: schema}
	for key, value := range map[string]*int64{"first_sequence": &s.First, "last_sequence": &s.Last} {
		if *value, err = strconv.ParseInt(meta[key], 10, 64); err != nil || *value < 1 {
			return nil, fmt.Errorf("%w: metadata: %s is %.40q", ErrCorrupt, key, meta[key])
		}
	}
	if err := meta.verify(schema.Metadata(), nil); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if sums, given := meta["checksums"]; given {
		s.sums = strings.Split(sums, ",")
	}
	return s, s.count()
}

// count finds where the parts begin.
func (s *Segment) count() error {
	next := s.First
	for i := range vectorLen(footerOf(s.file), footerRecordBatches) {
		batch, _ := batchOf(s.file, i)
		rows := rowsOf(batch)
		if rows < 1 || rows > MaxArrowRows {
			return fmt.Errorf("%w: %d records in part %d (limit %d)", ErrCorrupt, rows, i, MaxArrowRows)
		}
		s.starts = append(s.starts, next)
		next += rows
	}
	s.starts = append(s.starts, next)
	if next-1 != s.Last || s.sums != nil && len(s.sums) != s.Parts() {
		return fmt.Errorf("%w: metadata: sequences %d to %d and %d checksums, but %d parts of %d records", ErrCorrupt,
			s.First, s.Last, len(s.sums), s.Parts(), next-s.First)
	}
	return nil
}

// Parts is how many parts the segment has, at least one.
func (s *Segment) Parts() int { return len(s.starts) - 1 }

// LastOf is the last sequence of a part.
func (s *Segment) LastOf(part int) int64 { return s.starts[part+1] - 1 }

// Part reads the records of a part. Several may be read at the same time.
func (s *Segment) Part(i int) ([]Record, error) {
	records, err := s.read(i)
	if err != nil {
		return nil, fmt.Errorf("part %d of segment %d to %d of run %.80s: %w", i, s.First, s.Last, s.Run, err)
	}
	return records, nil
}

func (s *Segment) read(i int) (records []Record, err error) {
	defer invalid(&err)
	arrays, n, err := readBody(s.file, i, s.schema)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if s.sums != nil {
		if is := checksum(&metadata{}, arrays); is != s.sums[i] {
			return nil, fmt.Errorf("%w: its checksum is %s, but the metadata say %.40q", ErrCorrupt, is, s.sums[i])
		}
	}
	rows := make([]recordRow, n)
	if err := readColumns(recordColumns, arrays, rows); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	records, size := make([]Record, n), 0
	for k, row := range rows {
		if size += len(row.header); size > maxArrowJSON {
			return nil, fmt.Errorf("%w: more than %d bytes of headers", ErrTooLarge, maxArrowJSON)
		}
		if at := s.starts[i] + int64(k); row.Sequence != at {
			return nil, fmt.Errorf("%w: record %d has the sequence %d instead of %d", ErrCorrupt, k, row.Sequence, at)
		}
		records[k] = row.Record
		if records[k].Header, err = parseHeader(row.header); err != nil {
			return nil, fmt.Errorf("%w: headers of record %d: %w", ErrCorrupt, k, err)
		}
	}
	return records, nil
}

// Records reads part after part. It ends with the first error.
func (s *Segment) Records() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for i := range s.Parts() {
			records, err := s.Part(i)
			if err != nil {
				yield(Record{}, err)
				return
			}
			for _, r := range records {
				if !yield(r, nil) {
					return
				}
			}
		}
	}
}

// errGap: records must follow each other.
var errGap = errors.New("the sequences have a gap")
