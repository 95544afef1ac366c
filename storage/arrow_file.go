package storage

import (
	"bytes"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// Limits of an Arrow file, held by encoder and decoder alike. All are far above what a rollout or a
// batch needs, below what a reader elsewhere refuses (arrow-go: a body of 256 MiB), and let a
// hostile file take no more than about 2 GiB of memory.
const (
	// TrajectorySchema and BatchSchema are the versions of the files' columns and metadata.
	TrajectorySchema = "1"
	BatchSchema      = "1"
	// MaxArrowFile is the largest file in bytes.
	MaxArrowFile = 256 << 20
	// MaxArrowTokens is the largest number of tokens in a file.
	MaxArrowTokens = 1 << 25
	// MaxArrowRows is the largest number of messages or samples in a file.
	MaxArrowRows = 1 << 20

	maxArrowDecoded = 512 << 20 // bytes of all columns after decompression
	maxArrowText    = 64 << 10  // bytes of metadata: the segments of a trajectory of 10,000 turns fit in
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
	arrays, err := buildArrays(columns, rows)
	if err != nil {
		return nil, err
	}
	meta.add("checksum", checksum(meta, arrays))
	return finishFile(columns, meta, []part{writePart(arrays, len(rows))})
}

// finishFile makes a file of record batches.
func finishFile[R any](columns []column[R], meta *metadata, parts []part) ([]byte, error) {
	fields := make([]arrow.Field, len(columns))
	for i := range columns {
		fields[i] = columns[i].field
	}
	texts := arrow.NewMetadata(meta.keys, meta.values)
	file, err := writeFile(arrow.NewSchema(fields, &texts), parts)
	if err != nil {
		return nil, err
	}
	if len(file) > MaxArrowFile {
		return nil, fmt.Errorf("%w: a file of %d bytes (limit %d)", ErrTooLarge, len(file), MaxArrowFile)
	}
	return file, nil
}

// buildArrays makes the columns of a record batch.
func buildArrays[R any](columns []column[R], rows []R) ([]arrow.Array, error) {
	arrays, size := make([]arrow.Array, len(columns)), uint64(0)
	for i := range columns {
		data, err := columns[i].write(rows)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", columns[i].field.Name, err)
		}
		arrays[i] = array.MakeFromData(data)
		size += data.SizeInBytes()
	}
	if size > maxArrowDecoded {
		return nil, fmt.Errorf("%w: %d bytes uncompressed (limit %d)", ErrTooLarge, size, maxArrowDecoded)
	}
	return arrays, nil
}

// readArrow reads a file of one record batch back. It never panics and takes bounded memory,
// whatever the bytes; errors are ErrCorrupt or ErrTooLarge.
func readArrow[R any](columns []column[R], kind, schema string, file []byte,
	makeRows func(n int) []R) (meta annotations, rows []R, err error) {
	defer invalid(&err)
	found, err := openArrow(columns, kind, file, 1, schema)
	if err != nil {
		return nil, nil, err
	}
	arrays, count, err := readBody(file, 0, found)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	meta = found.Metadata().ToMap()
	if err := meta.verify(found.Metadata(), arrays); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	rows = makeRows(count)
	if err := readColumns(columns, arrays, rows); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return meta, rows, nil
}

// invalid turns a panic into an error: the library turns most malformed input into
// errors, but not all of it.
func invalid(err *error) {
	if problem := recover(); problem != nil {
		*err = fmt.Errorf("%w: not a valid Arrow file: %v", ErrCorrupt, problem)
	}
}

// openArrow checks a file, its metadata's kind and version, and its columns.
func openArrow[R any](columns []column[R], kind string, file []byte, maxBatches int,
	version string) (*arrow.Schema, error) {
	if len(file) > MaxArrowFile {
		return nil, fmt.Errorf("%w: a file of %d bytes (limit %d)", ErrTooLarge, len(file), MaxArrowFile)
	}
	if err := checkArrow(file, maxBatches); err != nil {
		return nil, fmt.Errorf("%w: not a valid Arrow file: %w", ErrCorrupt, err)
	}
	reader, err := ipc.NewFileReader(bytes.NewReader(file))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	defer reader.Close()
	if err := checkMetadata(reader.Schema().Metadata(), kind, version); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if err := checkSchema(columns, reader.Schema()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return reader.Schema(), nil
}

func readColumns[R any](columns []column[R], arrays []arrow.Array, rows []R) error {
	for i, column := range columns {
		if err := readColumn(column, arrays[i], rows); err != nil {
			return fmt.Errorf("column %s: %w", column.field.Name, err)
		}
	}
	return nil
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
			return fmt.Errorf("column %d is %.80q of type %.80s, want %q of type %s", i, field.Name, field.Type,
				column.field.Name, column.field.Type)
		}
	}
	return nil
}
