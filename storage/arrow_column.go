package storage

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// column is one column of a file whose rows are of type R.
type column[R any] struct {
	field  arrow.Field
	append func(builder array.Builder, row *R) error
	// read fills the rows from an array that has one entry for each and no nulls (unless the field is nullable).
	read func(values arrow.Array, rows []R) error
}

// scalars is an array of fixed-size values.
type scalars[T any] interface{ Value(i int) T }

// scalar makes a column of fixed-size values; value points to the row's field.
func scalar[R, T any, B interface {
	array.Builder
	Append(T)
}](name string, dataType arrow.DataType, value func(*R) *T) column[R] {
	return column[R]{
		field: arrow.Field{Name: name, Type: dataType},
		append: func(builder array.Builder, row *R) error {
			builder.(B).Append(*value(row))
			return nil
		},
		read: func(values arrow.Array, rows []R) error {
			typed := values.(scalars[T])
			for i := range rows {
				*value(&rows[i]) = typed.Value(i)
			}
			return nil
		},
	}
}

func int32Column[R any](name string, value func(*R) *int32) column[R] {
	return scalar[R, int32, *array.Int32Builder](name, arrow.PrimitiveTypes.Int32, value)
}

func int64Column[R any](name string, value func(*R) *int64) column[R] {
	return scalar[R, int64, *array.Int64Builder](name, arrow.PrimitiveTypes.Int64, value)
}

func float32Column[R any](name string, value func(*R) *float32) column[R] {
	return scalar[R, float32, *array.Float32Builder](name, arrow.PrimitiveTypes.Float32, value)
}

func boolColumn[R any](name string, value func(*R) *bool) column[R] {
	return scalar[R, bool, *array.BooleanBuilder](name, arrow.FixedWidthTypes.Boolean, value)
}

func durationColumn[R any](name string, value func(*R) *time.Duration) column[R] {
	asArrow := func(row *R) *arrow.Duration { return (*arrow.Duration)(value(row)) }
	return scalar[R, arrow.Duration, *array.DurationBuilder](name, arrow.FixedWidthTypes.Duration_ns, asArrow)
}

// timeColumn keeps nanoseconds in UTC; the zero time is null.
func timeColumn[R any](name string, value func(*R) *time.Time) column[R] {
	return column[R]{
		field: arrow.Field{Name: name, Type: arrow.FixedWidthTypes.Timestamp_ns, Nullable: true},
		append: func(builder array.Builder, row *R) error {
			at := *value(row)
			if at.IsZero() {
				builder.AppendNull()
				return nil
			}
			stamp := at.UnixNano()
			if !time.Unix(0, stamp).Equal(at) {
				return fmt.Errorf("%s: %v is out of the range of nanoseconds since 1970", name, at)
			}
			builder.(*array.TimestampBuilder).Append(arrow.Timestamp(stamp))
			return nil
		},
		read: func(values arrow.Array, rows []R) error {
			for i := range rows {
				if values.IsValid(i) {
					*value(&rows[i]) = time.Unix(0, int64(values.(*array.Timestamp).Value(i))).UTC()
				}
			}
			return nil
		},
	}
}

func stringColumn[R any](name string, value func(*R) *string) column[R] {
	return column[R]{
		field: arrow.Field{Name: name, Type: arrow.BinaryTypes.String},
		append: func(builder array.Builder, row *R) error {
			builder.(*array.StringBuilder).Append(strings.ToValidUTF8(*value(row), string(utf8.RuneError)))
			return nil
		},
		read: func(values arrow.Array, rows []R) error {
			texts := values.(*array.String)
			end := 0
			for i := range rows {
				if start := texts.ValueOffset(i); start != end {
					return fmt.Errorf("row %d begins at byte %d instead of %d", i, start, end)
				}
				text := texts.Value(i)
				if !utf8.ValidString(text) {
					return fmt.Errorf("row %d is not UTF-8", i)
				}
				*value(&rows[i]) = strings.Clone(text)
				end += len(text)
			}
			return nil
		},
	}
}

// listColumn makes a column of lists; copyAll gives a fresh slice of all the lists' values one after the other.
func listColumn[R, T any, B interface{ AppendValues([]T, []bool) }](
	name string, item arrow.DataType, value func(*R) *[]T, copyAll func(arrow.Array) []T,
) column[R] {
	return column[R]{
		field: arrow.Field{Name: name, Type: arrow.ListOf(item)},
		append: func(builder array.Builder, row *R) error {
			list := builder.(*array.ListBuilder)
			list.Append(true)
			list.ValueBuilder().(B).AppendValues(*value(row), nil)
			return nil
		},
		read: func(values arrow.Array, rows []R) error {
			lists := values.(*array.List)
			if nulls := lists.ListValues().NullN(); nulls != 0 {
				return fmt.Errorf("%d entries of the lists are null", nulls)
			}
			all := copyAll(lists.ListValues())
			return eachList(lists, len(rows), func(row, start, end int) {
				if end > start {
					*value(&rows[row]) = all[start:end:end]
				}
			})
		},
	}
}

// eachList checks that the lists follow one another without gap or overlap, so that they cannot add up to more than the file holds.
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

func int32ListColumn[R any](name string, value func(*R) *[]int32) column[R] {
	return listColumn[R, int32, *array.Int32Builder](name, arrow.PrimitiveTypes.Int32, value, func(values arrow.Array) []int32 {
		return slices.Clone(values.(*array.Int32).Int32Values())
	})
}

func float32ListColumn[R any](name string, value func(*R) *[]float32) column[R] {
	return listColumn[R, float32, *array.Float32Builder](name, arrow.PrimitiveTypes.Float32, value, func(values arrow.Array) []float32 {
		return slices.Clone(values.(*array.Float32).Float32Values())
	})
}

func boolListColumn[R any](name string, value func(*R) *[]bool) column[R] {
	return listColumn[R, bool, *array.BooleanBuilder](name, arrow.FixedWidthTypes.Boolean, value, func(values arrow.Array) []bool {
		bits := values.(*array.Boolean)
		all := make([]bool, bits.Len())
		for i := range all {
			all[i] = bits.Value(i)
		}
		return all
	})
}

// versionsColumn is a list of structs {start, length, version}.
func versionsColumn[R any](name string, value func(*R) *[]VersionSegment) column[R] {
	segment := arrow.StructOf(
		arrow.Field{Name: "start", Type: arrow.PrimitiveTypes.Int32},
		arrow.Field{Name: "length", Type: arrow.PrimitiveTypes.Int32},
		arrow.Field{Name: "version", Type: arrow.PrimitiveTypes.Int64},
	)
	return column[R]{
		field: arrow.Field{Name: name, Type: arrow.ListOf(segment)},
		append: func(builder array.Builder, row *R) error {
			list := builder.(*array.ListBuilder)
			list.Append(true)
			structs := list.ValueBuilder().(*array.StructBuilder)
			for _, v := range *value(row) {
				structs.Append(true)
				structs.FieldBuilder(0).(*array.Int32Builder).Append(v.Start)
				structs.FieldBuilder(1).(*array.Int32Builder).Append(v.Length)
				structs.FieldBuilder(2).(*array.Int64Builder).Append(v.Version)
			}
			return nil
		},
		read: func(values arrow.Array, rows []R) error {
			lists := values.(*array.List)
			all, err := readVersions(lists.ListValues().(*array.Struct))
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

func readVersions(structs *array.Struct) ([]VersionSegment, error) {
	nulls := structs.NullN()
	for i := range structs.NumField() {
		nulls += structs.Field(i).NullN()
	}
	if nulls != 0 {
		return nil, fmt.Errorf("%d entries are null", nulls)
	}
	starts, lengths := structs.Field(0).(*array.Int32).Int32Values(), structs.Field(1).(*array.Int32).Int32Values()
	versions := structs.Field(2).(*array.Int64).Int64Values()
	all := make([]VersionSegment, structs.Len())
	for i := range all {
		all[i] = VersionSegment{Start: starts[i], Length: lengths[i], Version: versions[i]}
	}
	return all, nil
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
