package storage

import (
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// listColumn makes a column of lists. write lays the values of all lists out one after the other,
// read gives them back so.
func listColumn[R, T any](name string, item arrow.DataType, value func(*R) *[]T,
	write func(all [][]T, total int) arrow.ArrayData, read func(arrow.Array) ([]T, error)) column[R] {
	dataType := arrow.ListOf(item)
	return column[R]{
		field: arrow.Field{Name: name, Type: dataType},
		write: func(rows []R) (arrow.ArrayData, error) {
			lists, offsets, total := make([][]T, len(rows)), make([]int32, len(rows)+1), 0
			for i := range rows {
				lists[i] = *value(&rows[i])
				if total += len(lists[i]); total > math.MaxInt32 {
					return nil, fmt.Errorf("%w: %d entries", ErrTooLarge, total)
				}
				offsets[i+1] = int32(total)
			}
			buffers := []*memory.Buffer{nil, memory.NewBufferBytes(arrow.GetBytes(offsets))}
			return array.NewData(dataType, len(rows), buffers, []arrow.ArrayData{write(lists, total)}, 0, 0), nil
		},
		read: func(values arrow.Array, rows []R) error {
			lists := values.(*array.List)
			if nulls := lists.ListValues().NullN(); nulls != 0 {
				return fmt.Errorf("%d entries of the lists are null", nulls)
			}
			all, err := read(lists.ListValues())
			if err != nil {
				return err
			}
			return eachList(lists, len(rows), func(row, start, end int) {
				if end > start {
					*value(&rows[row]) = all[start:end:end]
				}
			})
		},
	}
}

// eachList checks that the lists follow one another without gap or overlap, so that they cannot add
// up to more than the file holds.
func eachList(lists *array.List, rows int, list func(row, start, end int)) error {
	total, last := int64(lists.ListValues().Len()), int64(0)
	for row := range rows {
		start, end := lists.ValueOffsets(row)
		if start != last || end < start || end > total {
			return fmt.Errorf("row %d spans the entries %d to %d of %d, after %d", row, start, end, total, last)
		}
		list(row, int(start), int(end))
		last = end
	}
	return nil
}

// numbersColumn is a column of lists of fixed-size values.
func numbersColumn[R any, T arrow.FixedWidthType](name string, item arrow.DataType, value func(*R) *[]T) column[R] {
	return listColumn(name, item, value, func(lists [][]T, total int) arrow.ArrayData {
		return fixed(item, concat(lists, total), nil, 0)
	}, func(values arrow.Array) ([]T, error) { return fixedValues[T](values), nil })
}

func concat[T any](lists [][]T, total int) []T {
	if len(lists) == 1 {
		return lists[0]
	}
	all := make([]T, 0, total)
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}

func int32ListColumn[R any](name string, value func(*R) *[]int32) column[R] {
	return numbersColumn(name, arrow.PrimitiveTypes.Int32, value)
}

func float32ListColumn[R any](name string, value func(*R) *[]float32) column[R] {
	return numbersColumn(name, arrow.PrimitiveTypes.Float32, value)
}

func boolListColumn[R any](name string, value func(*R) *[]bool) column[R] {
	return listColumn(name, arrow.FixedWidthTypes.Boolean, value, packBits, func(values arrow.Array) ([]bool, error) {
		if values.Len() == 0 {
			return nil, nil
		}
		return unpackBits(values.Data().Buffers()[1].Bytes(), values.Len()), nil
	})
}
