package storage

import (
	"bytes"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// Limits of an Arrow file, held by encoder and decoder alike. All are far above what a rollout or a batch needs, below what a reader
// elsewhere refuses (arrow-go: a body of 256 MiB), and let a hostile file take no more than about 2 GiB of memory.
const (
	// TrajectorySchema and BatchSchema are the versions of the files' columns and metadata.
	TrajectorySchema = "1"
	BatchSchema      = "2"
	// MaxArrowFile is the largest file in bytes.
	MaxArrowFile = 256 << 20
	// MaxArrowTokens is the largest number of tokens in a file.
	MaxArrowTokens = 1 << 25
	// MaxArrowRows is the largest number of messages or samples in a file.
	MaxArrowRows = 1 << 20

	maxArrowDecoded = 512 << 20 // bytes of all columns after decompression
	maxArrowText    = 16 << 10  // bytes of metadata
	maxArrowJSON    = 32 << 20  // bytes of JSON in a batch's columns, which takes many times that when it is read
)

// writeArrow makes a file of one record batch. The same rows and metadata give the same bytes.
func writeArrow[R any](columns []column[R], meta *metadata, rows []R) ([]byte, error) {
	if len(rows) > MaxArrowRows {
		return nil, fmt.Errorf("%w: %d rows (limit %d)", ErrTooLarge, len(rows), MaxArrowRows)
	}
	if size := meta.size(); size > maxArrowText {
		return nil, fmt.Errorf("%w: %d bytes of metadata (limit %d)", ErrTooLarge, size, maxArrowText)
	}
	record, err := buildRecord(columns, meta, rows)
	if err != nil {
		return nil, err
	}
	if size := recordSize(record); size > maxArrowDecoded {
		return nil, fmt.Errorf("%w: %d bytes uncompressed (limit %d)", ErrTooLarge, size, maxArrowDecoded)
	}
	file, err := writeFile(record)
	if err != nil {
		return nil, err
	}
	if len(file) > MaxArrowFile {
		return nil, fmt.Errorf("%w: a file of %d bytes (limit %d)", ErrTooLarge, len(file), MaxArrowFile)
	}
	return file, nil
}

func buildRecord[R any](columns []column[R], meta *metadata, rows []R) (arrow.RecordBatch, error) {
	fields, arrays := make([]arrow.Field, len(columns)), make([]arrow.Array, len(columns))
	for i := range columns {
		fields[i] = columns[i].field
		data, err := columns[i].write(rows)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", fields[i].Name, err)
		}
		arrays[i] = array.MakeFromData(data)
	}
	meta.add("checksum", checksum(meta, arrays))
	texts := arrow.NewMetadata(meta.keys, meta.values)
	return array.NewRecordBatch(arrow.NewSchema(fields, &texts), arrays, int64(len(rows))), nil
}

func recordSize(record arrow.RecordBatch) uint64 {
	size := uint64(0)
	for _, values := range record.Columns() {
		size += values.Data().SizeInBytes()
	}
	return size
}

// readArrow reads a file back. It never panics and takes bounded memory, whatever the bytes; errors are ErrCorrupt or ErrTooLarge.
func readArrow[R any](columns []column[R], kind, schema string, file []byte, makeRows func(n int) []R) (meta annotations, rows []R, err error) {
	if len(file) > MaxArrowFile {
		return nil, nil, fmt.Errorf("%w: a file of %d bytes (limit %d)", ErrTooLarge, len(file), MaxArrowFile)
	}
	// The library turns most malformed input into errors, but not all of it.
	defer func() {
		if problem := recover(); problem != nil {
			meta, rows, err = nil, nil, fmt.Errorf("%w: not a valid Arrow file: %v", ErrCorrupt, problem)
		}
	}()
	if err := checkArrow(file); err != nil {
		return nil, nil, fmt.Errorf("%w: not a valid Arrow file: %w", ErrCorrupt, err)
	}
	meta, rows, err = readRecord(columns, kind, schema, file, makeRows)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return meta, rows, nil
}

func readRecord[R any](columns []column[R], kind, schema string, file []byte, makeRows func(n int) []R) (annotations, []R, error) {
	reader, err := ipc.NewFileReader(bytes.NewReader(file))
	if err != nil {
		return nil, nil, err
	}
	defer reader.Close()
	meta, err := readMetadata(reader.Schema().Metadata(), kind, schema)
	if err != nil {
		return nil, nil, err
	}
	if err := checkSchema(columns, reader.Schema()); err != nil {
		return nil, nil, err
	}
	arrays, count, err := readBody(file, reader.Schema())
	if err != nil {
		return nil, nil, err
	}
	if err := meta.verify(reader.Schema().Metadata(), arrays); err != nil {
		return nil, nil, err
	}
	rows := makeRows(count)
	for i, column := range columns {
		if err := readColumn(column, arrays[i], rows); err != nil {
			return nil, nil, fmt.Errorf("column %s: %w", column.field.Name, err)
		}
	}
	return meta, rows, nil
}

func readColumn[R any](c column[R], values arrow.Array, rows []R) error {
	if values.Len() != len(rows) {
		return fmt.Errorf("%d entries in %d rows", values.Len(), len(rows))
	}
	if nulls := values.NullN(); nulls != 0 && !c.field.Nullable {
		return fmt.Errorf("%d entries are null", nulls)
	}
	return c.read(values, rows)
}

func checkSchema[R any](columns []column[R], schema *arrow.Schema) error {
	if schema.NumFields() != len(columns) {
		return fmt.Errorf("%d columns, want %d", schema.NumFields(), len(columns))
	}
	for i, column := range columns {
		field := schema.Field(i)
		if field.Name != column.field.Name || !arrow.TypeEqual(field.Type, column.field.Type) {
			return fmt.Errorf("column %d is %.80q of type %.80s, want %q of type %s", i, field.Name, field.Type, column.field.Name, column.field.Type)
		}
	}
	return nil
}
