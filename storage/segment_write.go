package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// SegmentPart is the size of a part in bytes before compression: what a writer keeps uncompressed,
// and a reader holds decoded.
const SegmentPart = 8 << 20

// recordBytes is what a record counts beside its payload and headers.
const recordBytes = 128

// SegmentWriter makes a segment file: Arrow IPC file format, zstd; schemas/arrow.md describes it.
// The same records give the same bytes. It keeps the compressed parts and one that is not full.
type SegmentWriter struct {
	run, previous string
	first, last   int64
	parts         []part
	sums          []string
	stored        int
	rows          []recordRow
	raw           int // bytes of the rows
}

// NewSegmentWriter begins a segment of a run behind the file with a digest, "" for the first.
func NewSegmentWriter(run, previous string) *SegmentWriter {
	return &SegmentWriter{run: run, previous: previous}
}

// Add takes the next record; its data must not be changed until the segment is finished.
func (w *SegmentWriter) Add(r Record) error {
	if err := w.add(r); err != nil {
		return fmt.Errorf("segment of run %s: sequence %d: %w", w.run, r.Sequence, err)
	}
	return nil
}

func (w *SegmentWriter) add(r Record) error {
	if r.Sequence < 1 || w.first > 0 && r.Sequence != w.last+1 {
		return fmt.Errorf("%w: it comes behind %d", errGap, w.last)
	}
	header, err := json.Marshal(r.Header)
	if err != nil {
		return err
	}
	if len(w.parts) >= maxParts {
		return fmt.Errorf("%w: more than %d parts", ErrTooLarge, maxParts)
	}
	if len(header) > SegmentPart {
		return fmt.Errorf("%w: %d bytes of headers (limit %d)", ErrTooLarge, len(header), SegmentPart)
	}
	if w.first == 0 {
		w.first = r.Sequence
	}
	w.last = r.Sequence
	w.rows = append(w.rows, recordRow{header: string(header), Record: r})
	if w.raw += len(r.Data) + len(header) + len(r.Subject) + recordBytes; w.raw < SegmentPart {
		return nil
	}
	return w.close()
}

// close ends a part.
func (w *SegmentWriter) close() error {
	arrays, err := buildArrays(recordColumns, w.rows)
	if err != nil {
		return err
	}
	p := writePart(arrays, len(w.rows))
	w.parts, w.sums, w.stored = append(w.parts, p), append(w.sums, checksum(&metadata{}, arrays)), w.stored+p.size()
	w.rows, w.raw = nil, 0
	return nil
}

// Len is how many records there are.
func (w *SegmentWriter) Len() int {
	if w.first == 0 {
		return 0
	}
	return int(w.last - w.first + 1)
}

// Stored is the size of the full parts in bytes, as they will be in the file.
func (w *SegmentWriter) Stored() int { return w.stored }

// Parts is how many full parts there are.
func (w *SegmentWriter) Parts() int { return len(w.parts) }

// Finish makes the file.
func (w *SegmentWriter) Finish() ([]byte, error) {
	file, err := w.finish()
	if err != nil {
		return nil, fmt.Errorf("segment of run %s: %w", w.run, err)
	}
	return file, nil
}

func (w *SegmentWriter) finish() ([]byte, error) {
	if w.Len() == 0 {
		return nil, errors.New("it has no events")
	}
	if len(w.rows) > 0 {
		if err := w.close(); err != nil {
			return nil, err
		}
	}
	meta := &metadata{}
	meta.add("kind", segmentKind)
	meta.add("schema_version", SegmentSchema)
	meta.addText("run_id", w.run)
	meta.addText("previous", w.previous)
	meta.addInt("first_sequence", w.first)
	meta.addInt("last_sequence", w.last)
	meta.add("checksums", strings.Join(w.sums, ","))
	meta.add("checksum", checksum(meta, nil))
	if size := meta.size(); size > maxArrowText {
		return nil, fmt.Errorf("%w: %d bytes of metadata (limit %d)", ErrTooLarge, size, maxArrowText)
	}
	return finishFile(recordColumns, meta, w.parts)
}
