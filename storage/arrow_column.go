package storage

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// column is one column of a file whose rows are of type R. A file's tokens are copied at most once
// on their way in or out: write lays all rows out in the buffers of the column at once, and what
// read gives to the rows are parts of its buffers.
type column[R any] struct {
	field arrow.Field
	write func(rows []R) (arrow.ArrayData, error)
	// read fills the rows from an array that has one entry for each and no nulls
	// (unless the field is nullable).
	read func(values arrow.Array, rows []R) error
}

// fixed makes an array of fixed-size values; nulls is nil for none.
func fixed[T arrow.FixedWidthType](dataType arrow.DataType, values []T, nulls *memory.Buffer,
	nullCount int) arrow.ArrayData {
	return array.NewData(dataType, len(values), []*memory.Buffer{nulls, memory.NewBufferBytes(arrow.GetBytes(values))},
		nil, nullCount, 0)
}

// scalar makes a column of fixed-size values; value points to the row's field.
func scalar[R any, T arrow.FixedWidthType](name string, dataType arrow.DataType, value func(*R) *T) column[R] {
	return column[R]{
		field: arrow.Field{Name: name, Type: dataType},
		write: func(rows []R) (arrow.ArrayData, error) {
			values := make([]T, len(rows))
			for i := range rows {
				values[i] = *value(&rows[i])
			}
			return fixed(dataType, values, nil, 0), nil
		},
		read: func(values arrow.Array, rows []R) error {
			for i, v := range fixedValues[T](values) {
				*value(&rows[i]) = v
			}
			return nil
		},
	}
}

// fixedValues are the values in the buffer of an array without offset.
func fixedValues[T arrow.FixedWidthType](values arrow.Array) []T {
	if values.Len() == 0 {
		return nil
	}
	return arrow.GetData[T](values.Data().Buffers()[1].Bytes())[:values.Len()]
}

func int32Column[R any](name string, value func(*R) *int32) column[R] {
	return scalar(name, arrow.PrimitiveTypes.Int32, value)
}

func int64Column[R any](name string, value func(*R) *int64) column[R] {
	return scalar(name, arrow.PrimitiveTypes.Int64, value)
}

func float32Column[R any](name string, value func(*R) *float32) column[R] {
	return scalar(name, arrow.PrimitiveTypes.Float32, value)
}

func durationColumn[R any](name string, value func(*R) *time.Duration) column[R] {
	return scalar(name, arrow.FixedWidthTypes.Duration_ns, func(row *R) *int64 { return (*int64)(value(row)) })
}

func boolColumn[R any](name string, value func(*R) *bool) column[R] {
	return column[R]{
		field: arrow.Field{Name: name, Type: arrow.FixedWidthTypes.Boolean},
		write: func(rows []R) (arrow.ArrayData, error) {
			all := make([]bool, len(rows))
			for i := range rows {
				all[i] = *value(&rows[i])
			}
			return packBits([][]bool{all}, len(all)), nil
		},
		read: func(values arrow.Array, rows []R) error {
			for i := range rows {
				*value(&rows[i]) = values.(*array.Boolean).Value(i)
			}
			return nil
		},
	}
}

// timeColumn keeps nanoseconds in UTC; the zero time is null.
func timeColumn[R any](name string, value func(*R) *time.Time) column[R] {
	return column[R]{
		field: arrow.Field{Name: name, Type: arrow.FixedWidthTypes.Timestamp_ns, Nullable: true},
		write: func(rows []R) (arrow.ArrayData, error) {
			stamps := make([]int64, len(rows))
			valid, nulls := make([]byte, (len(rows)+7)/8), 0
			for i := range rows {
				at := *value(&rows[i])
				if at.IsZero() {
					nulls++
					continue
				}
				stamps[i] = at.UnixNano()
				valid[i/8] |= 1 << (i % 8)
				if !time.Unix(0, stamps[i]).Equal(at) {
					return nil, fmt.Errorf("row %d: %v is out of the range of nanoseconds since 1970", i, at)
				}
			}
			return fixed(arrow.FixedWidthTypes.Timestamp_ns, stamps, memory.NewBufferBytes(valid), nulls), nil
		},
		read: func(values arrow.Array, rows []R) error {
			for i, stamp := range fixedValues[int64](values) {
				if values.IsValid(i) {
					*value(&rows[i]) = time.Unix(0, stamp).UTC()
				}
			}
			return nil
		},
	}
}

func stringColumn[R any](name string, value func(*R) *string) column[R] {
	return column[R]{
		field: arrow.Field{Name: name, Type: arrow.BinaryTypes.String},
		write: func(rows []R) (arrow.ArrayData, error) {
			offsets, size := make([]int32, len(rows)+1), 0
			for i := range rows {
				size += len(*value(&rows[i]))
			}
			text := make([]byte, 0, size)
			for i := range rows {
				text = append(text, strings.ToValidUTF8(*value(&rows[i]), string(utf8.RuneError))...)
				if len(text) > maxArrowDecoded {
					return nil, fmt.Errorf("%w: more than %d bytes of text", ErrTooLarge, maxArrowDecoded)
				}
				offsets[i+1] = int32(len(text))
			}
			buffers := []*memory.Buffer{nil, memory.NewBufferBytes(arrow.GetBytes(offsets)),
				memory.NewBufferBytes(text)}
			return array.NewData(arrow.BinaryTypes.String, len(rows), buffers, nil, 0, 0), nil
		},
		read: readStrings(value),
	}
}

// readStrings gives the rows their texts, which share one copy of the column. Equal
// neighbours share the string, too.
func readStrings[R any](value func(*R) *string) func(arrow.Array, []R) error {
	return func(values arrow.Array, rows []R) error {
		texts := values.(*array.String)
		last, before := 0, ""
		for i := range rows {
			start, end := texts.ValueOffset(i), texts.ValueOffset(i)+texts.ValueLen(i)
			if start != last || end < start {
				return fmt.Errorf("row %d spans the bytes %d to %d, after %d", i, start, end, last)
			}
			last = end
			text := texts.Value(i)
			if text != before {
				if !utf8.ValidString(text) {
					return fmt.Errorf("row %d is not UTF-8", i)
				}
				before = strings.Clone(text)
			}
			*value(&rows[i]) = before
		}
		return nil
	}
}

// versionRange folds policy versions into the smallest and the largest; -1 counts for none.
type versionRange struct{ min, max int64 }

func newVersionRange() versionRange { return versionRange{min: math.MaxInt64, max: -1} }

func (r *versionRange) add(version int64) {
	if version >= 0 {
		r.min, r.max = min(r.min, version), max(r.max, version)
	}
}

// bounds gives -1, -1 for no version at all.
func (r versionRange) bounds() (low, high int64) {
	return min(r.min, r.max), r.max
}

func countTrue(values []bool) int {
	count := 0
	for _, value := range values {
		if value {
			count++
		}
	}
	return count
}
