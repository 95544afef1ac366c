package storage

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// A row group is written when it has this many rows, or about this many bytes before compression: writing a file of any size takes
// the memory of one row group.
const (
	parquetRows  = 16 << 10
	parquetBytes = 32 << 20
)

// parquetTable writes rows into a Parquet file with the columns that they have in Arrow files.
type parquetTable[R any] struct {
	columns []column[R]
	file    *file.Writer
	rows    []R
	size    int
}

func newParquetTable[R any](w io.Writer, columns []column[R], kind, version string) (*parquetTable[R], error) {
	fields := make(schema.FieldList, len(columns))
	for i := range columns {
		var err error
		if fields[i], err = parquetNode(columns[i].field); err != nil {
			return nil, err
		}
	}
	root, err := schema.NewGroupNode("schema", parquet.Repetitions.Required, fields, -1)
	if err != nil {
		return nil, err
	}
	properties := parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Zstd), parquet.WithCreatedBy("rondo"))
	// The library would close what it writes to, if that can be closed.
	made, err := file.NewParquetWriterWithError(struct{ io.Writer }{w}, root, file.WithWriterProps(properties))
	if err == nil {
		err = errors.Join(made.AppendKeyValueMetadata("kind", kind), made.AppendKeyValueMetadata("schema_version", version))
	}
	if err != nil {
		return nil, fmt.Errorf("begin a Parquet file: %w", err)
	}
	return &parquetTable[R]{columns: columns, file: made}, nil
}

// add takes a row over; size is about how many bytes it has.
func (t *parquetTable[R]) add(r R, size int) error {
	t.rows, t.size = append(t.rows, r), t.size+size
	if len(t.rows) < parquetRows && t.size < parquetBytes {
		return nil
	}
	return t.flush()
}

func (t *parquetTable[R]) flush() error {
	group, err := t.file.AppendRowGroupChecked()
	if err != nil {
		return fmt.Errorf("begin a row group: %w", err)
	}
	for _, c := range t.columns {
		data, err := c.write(t.rows)
		if err == nil {
			err = writeParquet(group, array.MakeFromData(data))
		}
		if err != nil {
			return fmt.Errorf("column %s: %w", c.field.Name, err)
		}
	}
	clear(t.rows)
	t.rows, t.size = t.rows[:0], 0
	return group.Close()
}

// close writes what is left and the file's footer.
func (t *parquetTable[R]) close() error {
	if len(t.rows) > 0 {
		if err := t.flush(); err != nil {
			return err
		}
	}
	return t.file.Close()
}

// perToken is about how many bytes a token has in all columns.
const perToken = 20

// MessageParquet writes the messages of trajectories into one Parquet file, with the columns of trajectory files. Parquet has no
// durations: duration_ns holds nanoseconds. It is not safe for concurrent use.
type MessageParquet struct{ table *parquetTable[messageRow] }

// NewMessageParquet begins a file; nothing of it is readable before Close.
func NewMessageParquet(w io.Writer) (*MessageParquet, error) {
	columns := slices.Clone(messageColumns)
	at := slices.IndexFunc(columns, func(c column[messageRow]) bool { return c.field.Name == "duration" })
	columns[at] = scalar("duration_ns", arrow.PrimitiveTypes.Int64, func(r *messageRow) *int64 { return (*int64)(&r.Duration) })
	table, err := newParquetTable(w, columns, trajectoryKind, TrajectorySchema)
	return &MessageParquet{table}, err
}

// Add writes a trajectory, one row for each message.
func (p *MessageParquet) Add(t *Trajectory) error {
	if err := t.validate(); err != nil {
		return fmt.Errorf("trajectory of %s: %w", t.Rollout, err)
	}
	for _, m := range t.Messages {
		r := messageRow{run: t.Run, group: t.Group, rollout: t.Rollout, task: t.Task, Message: m}
		if err := p.table.add(r, len(m.Content)+len(m.ToolCalls)+perToken*len(m.TokenIDs)); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the file. It does not close the writer beneath.
func (p *MessageParquet) Close() error { return p.table.close() }

// SampleParquet writes training samples into one Parquet file, with the columns of batch files. It is not safe for concurrent use.
type SampleParquet struct{ table *parquetTable[sampleRow] }

// NewSampleParquet begins a file; nothing of it is readable before Close.
func NewSampleParquet(w io.Writer) (*SampleParquet, error) {
	table, err := newParquetTable(w, sampleColumns, batchKind, BatchSchema)
	return &SampleParquet{table}, err
}

// Add writes samples, one row for each.
func (p *SampleParquet) Add(samples []Sample) error {
	for i := range samples {
		r := sampleRow{Sample: &samples[i]}
		if err := r.validate(0); err != nil {
			return fmt.Errorf("sample %d of %s: %w", samples[i].SampleIndex, samples[i].Rollout, err)
		}
		if err := r.encodeTexts(); err != nil {
			return err
		}
		if err := p.table.add(r, r.texts()+perToken*len(r.Tokens)); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the file. It does not close the writer beneath.
func (p *SampleParquet) Close() error { return p.table.close() }
