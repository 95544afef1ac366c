package storage

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// The Arrow library's own way from its arrays to Parquet brings gRPC along. The few types that the files have are laid out here:
// values without nulls, times that may be null, and lists of values or of structs.

// parquetNode is the Parquet type of a column.
func parquetNode(f arrow.Field) (schema.Node, error) {
	repetition := parquet.Repetitions.Required
	if f.Nullable {
		repetition = parquet.Repetitions.Optional
	}
	switch t := f.Type.(type) {
	case *arrow.ListType:
		element, err := parquetNode(arrow.Field{Name: "element", Type: t.Elem()})
		if err != nil {
			return nil, err
		}
		return schema.ListOfWithName(f.Name, element, parquet.Repetitions.Required, -1)
	case *arrow.StructType:
		fields := make(schema.FieldList, t.NumFields())
		for i, field := range t.Fields() {
			var err error
			field.Nullable = false // structs of fields that are never null
			if fields[i], err = parquetNode(field); err != nil {
				return nil, err
			}
		}
		return schema.NewGroupNode(f.Name, parquet.Repetitions.Required, fields, -1)
	case *arrow.TimestampType:
		return schema.NewPrimitiveNodeLogical(f.Name, repetition, schema.NewTimestampLogicalType(true, schema.TimeUnitNanos), parquet.Types.Int64, -1, -1)
	case *arrow.StringType:
		return schema.NewPrimitiveNodeLogical(f.Name, repetition, schema.StringLogicalType{}, parquet.Types.ByteArray, -1, -1)
	case *arrow.BooleanType:
		return schema.NewBooleanNode(f.Name, repetition, -1), nil
	case *arrow.Int32Type:
		return schema.NewInt32Node(f.Name, repetition, -1), nil
	case *arrow.Int64Type:
		return schema.NewInt64Node(f.Name, repetition, -1), nil
	case *arrow.Float32Type:
		return schema.NewFloat32Node(f.Name, repetition, -1), nil
	}
	return nil, fmt.Errorf("column %s: no Parquet type for %s", f.Name, f.Type)
}

// writeParquet writes the next column of a row group, or the next ones for a list of structs.
func writeParquet(group file.SerialRowGroupWriter, values arrow.Array) error {
	lists, ok := values.(*array.List)
	if !ok {
		return writeLeaf(group, values, presence(values), nil)
	}
	defined, repeated := listLevels(lists)
	items, ok := lists.ListValues().(*array.Struct)
	if !ok {
		return writeLeaf(group, lists.ListValues(), defined, repeated)
	}
	for i := range items.NumField() {
		if err := writeLeaf(group, items.Field(i), defined, repeated); err != nil {
			return err
		}
	}
	return nil
}

// presence are the definition levels of a column that may be null, nil for one without nulls that is not.
func presence(values arrow.Array) []int16 {
	if values.DataType().ID() != arrow.TIMESTAMP {
		return nil
	}
	levels := make([]int16, values.Len())
	for i := range levels {
		if values.IsValid(i) {
			levels[i] = 1
		}
	}
	return levels
}

// listLevels are the definition and repetition levels of lists: an entry is defined (1), and repeats (1) behind the first of its
// list; an empty list is one place where nothing is defined.
func listLevels(lists *array.List) (defined, repeated []int16) {
	room := lists.ListValues().Len() + lists.Len()
	defined, repeated = make([]int16, 0, room), make([]int16, 0, room)
	for row := range lists.Len() {
		start, end := lists.ValueOffsets(row)
		if start == end {
			defined, repeated = append(defined, 0), append(repeated, 0)
		}
		for i := start; i < end; i++ {
			defined = append(defined, 1)
			repeated = append(repeated, int16(min(1, i-start)))
		}
	}
	return defined, repeated
}

// writeLeaf writes the values of one Parquet column, of which nulls are left out.
func writeLeaf(group file.SerialRowGroupWriter, values arrow.Array, defined, repeated []int16) error {
	writer, err := group.NextColumn()
	if err != nil {
		return err
	}
	switch w := writer.(type) {
	case *file.Int32ColumnChunkWriter:
		_, err = w.WriteBatch(fixedValues[int32](values), defined, repeated)
	case *file.Int64ColumnChunkWriter:
		_, err = w.WriteBatch(presentValues(values), defined, repeated)
	case *file.Float32ColumnChunkWriter:
		_, err = w.WriteBatch(fixedValues[float32](values), defined, repeated)
	case *file.BooleanColumnChunkWriter:
		var bools []bool
		if values.Len() > 0 {
			bools = unpackBits(values.Data().Buffers()[1].Bytes(), values.Len())
		}
		_, err = w.WriteBatch(bools, defined, repeated)
	case *file.ByteArrayColumnChunkWriter:
		texts := values.(*array.String)
		list := make([]parquet.ByteArray, texts.Len())
		for i := range list {
			list[i] = parquet.ByteArray(texts.Value(i))
		}
		_, err = w.WriteBatch(list, defined, repeated)
	default:
		err = fmt.Errorf("no values of %s can be written", values.DataType())
	}
	if err != nil {
		return err
	}
	return writer.Close()
}

// presentValues are the 64-bit values that are not null.
func presentValues(values arrow.Array) []int64 {
	all := fixedValues[int64](values)
	if values.NullN() == 0 {
		return all
	}
	present := make([]int64, 0, len(all)-values.NullN())
	for i, v := range all {
		if values.IsValid(i) {
			present = append(present, v)
		}
	}
	return present
}
