package storage

import (
	"bytes"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// binaryColumn keeps bytes as they are.
func binaryColumn[R any](name string, value func(*R) *[]byte) column[R] {
	return column[R]{
		field: arrow.Field{Name: name, Type: arrow.BinaryTypes.Binary},
		write: func(rows []R) (arrow.ArrayData, error) {
			parts, offsets, size := make([][]byte, len(rows)), make([]int32, len(rows)+1), 0
			for i := range rows {
				parts[i] = *value(&rows[i])
				if size += len(parts[i]); size > maxArrowDecoded {
					return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, maxArrowDecoded)
				}
				offsets[i+1] = int32(size)
			}
			buffers := []*memory.Buffer{nil, memory.NewBufferBytes(arrow.GetBytes(offsets)),
				memory.NewBufferBytes(bytes.Join(parts, nil))}
			return array.NewData(arrow.BinaryTypes.Binary, len(rows), buffers, nil, 0, 0), nil
		},
		read: func(values arrow.Array, rows []R) error {
			found, last := values.(*array.Binary), 0
			for i := range rows {
				start, end := found.ValueOffset(i), found.ValueOffset(i)+found.ValueLen(i)
				if start != last || end < start {
					return fmt.Errorf("row %d spans the bytes %d to %d, after %d", i, start, end, last)
				}
				last = end
				*value(&rows[i]) = found.Value(i)
			}
			return nil
		},
	}
}
