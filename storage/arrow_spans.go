package storage

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// spanColumn makes a column of lists of structs, such as spans of tokens; the fields
// are columns of their own.
func spanColumn[R, T any](name string, value func(*R) *[]T, fields ...column[T]) column[R] {
	types := make([]arrow.Field, len(fields))
	for i := range fields {
		types[i] = fields[i].field
	}
	item := arrow.StructOf(types...)
	write := func(lists [][]T, total int) arrow.ArrayData {
		all, children := concat(lists, total), make([]arrow.ArrayData, len(fields))
		for i := range fields {
			children[i], _ = fields[i].write(all) // fixed-size values: nothing to refuse
		}
		return array.NewData(item, total, []*memory.Buffer{nil}, children, 0, 0)
	}
	read := func(values arrow.Array) ([]T, error) {
		all := make([]T, values.Len())
		for i := range fields {
			if err := readColumn(fields[i], values.(*array.Struct).Field(i), all); err != nil {
				return nil, fmt.Errorf("%s: %w", fields[i].field.Name, err)
			}
		}
		return all, nil
	}
	return listColumn(name, item, value, write, read)
}

// versionsColumn is a list of structs {start, length, version, stale}.
func versionsColumn[R any](name string, value func(*R) *[]VersionSegment) column[R] {
	return spanColumn(name, value,
		int32Column("start", func(v *VersionSegment) *int32 { return &v.Start }),
		int32Column("length", func(v *VersionSegment) *int32 { return &v.Length }),
		int64Column("version", func(v *VersionSegment) *int64 { return &v.Version }),
		boolColumn("stale", func(v *VersionSegment) *bool { return &v.Stale }),
	)
}

// messageVersionsColumn is a list of structs {start, length, version}.
func messageVersionsColumn[R any](name string, value func(*R) *[]VersionSegment) column[R] {
	return spanColumn(name, value,
		int32Column("start", func(v *VersionSegment) *int32 { return &v.Start }),
		int32Column("length", func(v *VersionSegment) *int32 { return &v.Length }),
		int64Column("version", func(v *VersionSegment) *int64 { return &v.Version }),
	)
}

// turnsColumn is a list of structs {start, length, turn}.
func turnsColumn[R any](name string, value func(*R) *[]TurnSpan) column[R] {
	return spanColumn(name, value,
		int32Column("start", func(t *TurnSpan) *int32 { return &t.Start }),
		int32Column("length", func(t *TurnSpan) *int32 { return &t.Length }),
		int32Column("turn", func(t *TurnSpan) *int32 { return &t.Turn }),
	)
}
