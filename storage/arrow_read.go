package storage

import (
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	flatbuffers "github.com/google/flatbuffers/go"
	"github.com/klauspost/compress/zstd"
)

// decompressor is safe for use by many goroutines. A frame gives as many bytes as there
// is room for, or an error.
var decompressor = func() *zstd.Decoder {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderMaxMemory(maxArrowDecoded), zstd.WithDecoderMaxWindow(maxArrowWindow))
	if err != nil {
		panic(err) // only options can be wrong
	}
	return decoder
}()

// readBody reads a record batch of a file that checkArrow has passed, and checks that every buffer
// is as long as its entries need. The arrays lie in memory of their own.
func readBody(file []byte, i int, schema *arrow.Schema) (columns []arrow.Array, rows int, err error) {
	batch, content := batchOf(file, i)
	r := &bodyReader{batch: batch, content: content}
	_, r.compressed = subTable(batch, batchCompression)
	count := rowsOf(batch)
	if count < 0 || count > MaxArrowRows {
		return nil, 0, fmt.Errorf("%d rows (limit %d)", count, MaxArrowRows)
	}
	for _, field := range schema.Fields() {
		data, err := r.read(field.Type)
		if err != nil {
			return nil, 0, fmt.Errorf("column %s: %w", field.Name, err)
		}
		if int64(data.Len()) != count {
			return nil, 0, fmt.Errorf("column %s: %d entries in %d rows", field.Name, data.Len(), count)
		}
		columns = append(columns, array.MakeFromData(data))
	}
	return columns, int(count), nil
}

// rowsOf is how many rows a record batch claims.
func rowsOf(batch flatbuffers.Table) int64 {
	at := flatbuffers.UOffsetT(batch.Offset(batchLength))
	if at == 0 {
		return 0
	}
	return batch.GetInt64(batch.Pos + at)
}

// batchOf finds a record batch's table and its body.
func batchOf(file []byte, i int) (flatbuffers.Table, []byte) {
	offset, header, body := blockOf(blockAt(footerOf(file), i))
	batch, _ := subTable(rootTable(file[offset+8:offset+header]), messageHeader)
	return batch, file[offset+header : offset+header+body]
}

// bodyReader takes arrays and buffers in the order in which they were written.
type bodyReader struct {
	batch         flatbuffers.Table
	content       []byte
	compressed    bool
	nodes, buffer int
}

// read takes the next array, and its children.
func (r *bodyReader) read(dataType arrow.DataType) (arrow.ArrayData, error) {
	if r.nodes >= vectorLen(r.batch, batchNodes) {
		return nil, errors.New("the record batch ends before it")
	}
	at := int(vectorStart(r.batch, batchNodes)) + 16*r.nodes
	length, nulls := int(int64At(r.batch.Bytes, at)), int(int64At(r.batch.Bytes, at+8))
	r.nodes++
	layout := dataType.Layout().Buffers
	buffers := make([]*memory.Buffer, len(layout))
	last := 0 // of the offsets
	for i, spec := range layout {
		content, err := r.next()
		if err != nil {
			return nil, err
		}
		need := 0
		switch {
		case spec.Kind == arrow.KindBitmap && (i > 0 || nulls > 0):
			need = (length + 7) / 8
		case spec.Kind == arrow.KindFixedWidth:
			need = length * spec.ByteWidth
			if hasOffsets(dataType.ID()) && length > 0 {
				need += spec.ByteWidth
			}
		case spec.Kind == arrow.KindVarWidth:
			need = last
		}
		if len(content) < need {
			return nil, fmt.Errorf("%d bytes for %d entries, which need %d", len(content), length, need)
		}
		if hasOffsets(dataType.ID()) && i == 1 && length > 0 {
			if last = int(arrow.GetData[int32](content[:need])[length]); last < 0 {
				return nil, fmt.Errorf("entry %d begins at %d", length, last)
			}
		}
		if len(content) > 0 {
			buffers[i] = memory.NewBufferBytes(content)
		}
	}
	return r.withChildren(dataType, length, nulls, buffers, last)
}

func (r *bodyReader) withChildren(dataType arrow.DataType, length, nulls int, buffers []*memory.Buffer,
	last int) (arrow.ArrayData, error) {
	nested, ok := dataType.(arrow.NestedType)
	if !ok {
		return array.NewData(dataType, length, buffers, nil, nulls, 0), nil
	}
	var children []arrow.ArrayData
	for _, field := range nested.Fields() {
		child, err := r.read(field.Type)
		if err != nil {
			return nil, err
		}
		if dataType.ID() == arrow.STRUCT && child.Len() != length || child.Len() < last {
			return nil, fmt.Errorf("%d entries of %s, want %d", child.Len(), field.Name, max(length, last))
		}
		children = append(children, child)
	}
	return array.NewData(dataType, length, buffers, children, nulls, 0), nil
}

// next takes a buffer out of the file.
func (r *bodyReader) next() ([]byte, error) {
	if r.buffer >= vectorLen(r.batch, batchBuffers) {
		return nil, errors.New("the record batch has too few buffers")
	}
	at := int(vectorStart(r.batch, batchBuffers)) + 16*r.buffer
	r.buffer++
	start, length := int64At(r.batch.Bytes, at), int64At(r.batch.Bytes, at+8)
	content := r.content[start : start+length]
	size := int64(-1)
	if r.compressed && length > 0 {
		size, content = int64At(content, 0), content[8:]
	}
	if size < 0 {
		return append([]byte(nil), content...), nil // aligned, and apart from the file
	}
	decoded, err := decompressor.DecodeAll(content, make([]byte, 0, size))
	if err == nil && int64(len(decoded)) != size {
		err = fmt.Errorf("%d bytes instead of %d", len(decoded), size)
	}
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	return decoded, nil
}
