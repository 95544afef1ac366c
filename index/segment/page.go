package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/klauspost/compress/zstd"

	"github.com/rondo-rl/rondo/storage"
)

// A page is a record batch of an Arrow IPC stream. The stream's schema follows from the section and
// the number of dimensions, so pages do not repeat it: the schema's message and the pages of a
// section, opened and joined, are a stream that any Arrow reader reads.

// schemaOf gives the columns of a section.
func schemaOf(s section, dimensions int) *arrow.Schema {
	field := func(name string, t arrow.DataType) arrow.Field { return arrow.Field{Name: name, Type: t} }
	fixed := func(width int) arrow.DataType { return &arrow.FixedSizeBinaryType{ByteWidth: width} }
	number, text := arrow.PrimitiveTypes.Uint32, arrow.BinaryTypes.Binary
	var fields []arrow.Field
	switch s {
	case files:
		fields = []arrow.Field{field("path", text), field("content", fixed(16)),
			field("rows", number), field("words", number)}
	case order:
		fields = []arrow.Field{field("tie", arrow.PrimitiveTypes.Uint64), field("rows", number),
			field("class", arrow.PrimitiveTypes.Uint8)}
	case ids:
		fields = []arrow.Field{field("id", fixed(16)), field("slot", number)}
	case vectors:
		fields = []arrow.Field{field("vector", fixed(dimensions)),
			field("scale", arrow.PrimitiveTypes.Float32), field("row", number)}
	case signBits:
		fields = []arrow.Field{field("signs", fixed(8*signWords(dimensions))),
			field("length", arrow.PrimitiveTypes.Float32), field("row", number)}
	case lengths:
		fields = []arrow.Field{field("words", number)}
	case rows:
		fields = []arrow.Field{field("path", text), field("symbol", text), field("start", number), field("end", number),
			field("first", number), field("last", number)}
	case postings:
		fields = []arrow.Field{field("word", arrow.PrimitiveTypes.Uint64), field("count", number), field("rows", text)}
	}
	return arrow.NewSchema(fields, nil)
}

type shape struct {
	section    section
	dimensions int
}

// heads are the schemas with their messages, by shape.
var heads sync.Map

type head struct {
	schema  *arrow.Schema
	message []byte
}

var endOfStream = []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}

func headOf(s section, dimensions int) (head, error) {
	key := shape{s, dimensions}
	if h, ok := heads.Load(key); ok {
		return h.(head), nil
	}
	schema := schemaOf(s, dimensions)
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(schema))
	if err := w.Close(); err != nil {
		return head{}, err
	}
	message, ok := bytes.CutSuffix(out.Bytes(), endOfStream)
	if !ok {
		return head{}, errors.New("the Arrow library ends streams in another way than expected")
	}
	h := head{schema, message}
	heads.Store(key, h)
	return h, nil
}

// Compressors are safe for use by many goroutines. What is sealed needs no checksum.
var compressor = func() *zstd.Encoder {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(false), zstd.WithEncoderConcurrency(2),
		zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(err) // only options can be wrong
	}
	return encoder
}()

var decompressor = func() *zstd.Decoder {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(maxPlain))
	if err != nil {
		panic(err)
	}
	return decoder
}()

// maxPlain is the largest document that decompresses, a page or a manifest.
const maxPlain = 16 << 20

// Forms of what is sealed, as its first byte.
const (
	plain      = 0
	compressed = 1
)

// pack compresses data where that helps.
func pack(data []byte, compress bool) []byte {
	if compress {
		if small := compressor.EncodeAll(data, []byte{compressed}); len(small) < len(data) {
			return small
		}
	}
	return append([]byte{plain}, data...)
}

func unpack(packed []byte, limit int) ([]byte, error) {
	switch {
	case len(packed) == 0:
		return nil, fmt.Errorf("%w: nothing is in it", storage.ErrCorrupt)
	case packed[0] == plain:
		return packed[1:], nil
	case packed[0] != compressed:
		return nil, fmt.Errorf("%w: form %d", storage.ErrCorrupt, packed[0])
	}
	var h zstd.Header
	if err := h.Decode(packed[1:]); err != nil || h.HasFCS && h.FrameContentSize > uint64(limit) {
		return nil, fmt.Errorf("%w: zstd: it claims %d bytes (limit %d): %v", storage.ErrCorrupt,
			h.FrameContentSize, limit, err)
	}
	data, err := decompressor.DecodeAll(packed[1:], nil)
	if err != nil || len(data) > limit {
		return nil, fmt.Errorf("%w: zstd: %d bytes (limit %d): %v", storage.ErrCorrupt, len(data), limit, err)
	}
	return data, nil
}

// encodePage lays columns out as a page, opened.
func encodePage(s section, dimensions int, columns ...arrow.ArrayData) ([]byte, error) {
	h, err := headOf(s, dimensions)
	if err != nil {
		return nil, err
	}
	arrays := make([]arrow.Array, len(columns))
	for i, c := range columns {
		arrays[i] = array.MakeFromData(c)
	}
	batch := array.NewRecordBatch(h.schema, arrays, int64(columns[0].Len()))
	defer batch.Release()
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(h.schema))
	if err := errors.Join(w.Write(batch), w.Close()); err != nil {
		return nil, err
	}
	message, ok := bytes.CutPrefix(bytes.TrimSuffix(out.Bytes(), endOfStream), h.message)
	if !ok || len(message) > maxPage {
		return nil, fmt.Errorf("a page of %s: %w: %d bytes (limit %d)", s, storage.ErrTooLarge, len(message), maxPage)
	}
	return pack(message, s != vectors && s != signBits), nil
}

// fixedColumn makes a column of numbers.
func fixedColumn[T arrow.FixedWidthType](t arrow.DataType, values []T) arrow.ArrayData {
	return array.NewData(t, len(values), []*memory.Buffer{nil, memory.NewBufferBytes(arrow.GetBytes(values))}, nil,
		0, 0)
}

func uint32Column(values []uint32) arrow.ArrayData {
	return fixedColumn(arrow.PrimitiveTypes.Uint32, values)
}

// bytesColumn makes a column of byte strings of the same width, which stand one after another.
func bytesColumn(width int, data []byte) arrow.ArrayData {
	return array.NewData(&arrow.FixedSizeBinaryType{ByteWidth: width}, len(data)/width,
		[]*memory.Buffer{nil, memory.NewBufferBytes(data)}, nil, 0, 0)
}

// textColumn makes a column of byte strings.
func textColumn[T string | []byte](values []T) arrow.ArrayData {
	offsets, data := make([]int32, 1, len(values)+1), []byte{}
	for _, v := range values {
		data = append(data, v...)
		offsets = append(offsets, int32(len(data)))
	}
	return array.NewData(arrow.BinaryTypes.Binary, len(values),
		[]*memory.Buffer{nil, memory.NewBufferBytes(arrow.GetBytes(offsets)), memory.NewBufferBytes(data)}, nil, 0, 0)
}

// budget is an allocator for the Arrow library that refuses what no page needs.
type budget struct {
	memory.Allocator
	left int
}

func (b *budget) Allocate(size int) []byte {
	if b.left -= size; size < 0 || b.left < 0 {
		panic("more memory than a page may take")
	}
	return b.Allocator.Allocate(size)
}

func (b *budget) Reallocate(size int, old []byte) []byte {
	if b.left -= size; size < 0 || b.left < 0 {
		panic("more memory than a page may take")
	}
	return b.Allocator.Reallocate(size, old)
}

// batch reads the columns of a page, which may come from anywhere. Its methods panic where a column
// is not what it should be.
type batch struct {
	arrow.RecordBatch
}

// decodePage reads a page, opened, and hands it to read. Whatever the bytes, it takes bounded
// memory; the error is an ErrCorrupt.
func decodePage(s section, dimensions int, packed []byte, want int, read func(batch)) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("%w: not a valid page: %v", storage.ErrCorrupt, problem)
		}
	}()
	message, err := unpack(packed, maxPage)
	if err != nil {
		return err
	}
	h, err := headOf(s, dimensions)
	if err != nil {
		return err
	}
	stream := io.MultiReader(bytes.NewReader(h.message), bytes.NewReader(message), bytes.NewReader(endOfStream))
	r, err := ipc.NewReader(stream, ipc.WithSchema(h.schema),
		ipc.WithAllocator(&budget{memory.DefaultAllocator, 4 * maxPage}),
		ipc.WithMetadataSizeLimit(64<<10), ipc.WithBodySizeLimit(maxPage))
	if err != nil {
		return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	record, err := r.Read()
	if err != nil {
		return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	if n := record.NumRows(); want != 0 && n != int64(want) || n > maxPage {
		return fmt.Errorf("%w: %d entries, want %d", storage.ErrCorrupt, n, want)
	}
	read(batch{record})
	return nil
}

func (b batch) column(i int) arrow.ArrayData {
	c := b.Column(i)
	if c.Len() != int(b.NumRows()) || c.NullN() != 0 || c.Data().Offset() != 0 {
		panic(fmt.Sprintf("column %d has %d entries, %d of them null, in %d rows", i, c.Len(), c.NullN(), b.NumRows()))
	}
	return c.Data()
}

// numbers gives a column of numbers, of which none may reach a limit.
func (b batch) numbers(i int, limit uint32) []uint32 {
	values := values[uint32](b, i)
	for _, v := range values {
		if v >= limit {
			panic(fmt.Sprintf("column %d has %d where all are below %d", i, v, limit))
		}
	}
	return values
}

func values[T arrow.FixedWidthType](b batch, i int) []T {
	data := b.column(i)
	if data.Len() == 0 {
		return nil
	}
	return arrow.GetData[T](data.Buffers()[1].Bytes())[:data.Len()]
}

// scales gives a column of numbers that are not negative.
func (b batch) scales(i int) []float32 {
	all := values[float32](b, i)
	for _, v := range all {
		if !(v >= 0 && v < 1e6) {
			panic(fmt.Sprintf("column %d has %g", i, v))
		}
	}
	return all
}

// fixed gives a column of byte strings of one width, one after another.
func (b batch) fixed(i, width int) []byte {
	data := b.column(i)
	if data.Len() == 0 {
		return nil
	}
	return data.Buffers()[1].Bytes()[:data.Len()*width]
}

// texts gives a column of byte strings of at most a length, one after
// another, and where each begins.
func (b batch) texts(i, longest int) (all []byte, offsets []int32) {
	data := b.column(i)
	if data.Len() == 0 {
		return nil, []int32{0}
	}
	offsets = arrow.GetData[int32](data.Buffers()[1].Bytes())[:data.Len()+1]
	if buffer := data.Buffers()[2]; buffer != nil {
		all = buffer.Bytes()
	}
	for k := range data.Len() {
		if from, to := int(offsets[k]), int(offsets[k+1]); from < 0 || to < from || to > len(all) || to-from > longest {
			panic(fmt.Sprintf("column %d: entry %d lies from %d to %d of %d bytes", i, k, from, to, len(all)))
		}
	}
	return all, offsets
}

// strings copies a column of texts.
func (b batch) strings(i, longest int) []string {
	all, offsets := b.texts(i, longest)
	out := make([]string, len(offsets)-1)
	for k := range out {
		if k > 0 && bytes.Equal(all[offsets[k]:offsets[k+1]], all[offsets[k-1]:offsets[k]]) {
			out[k] = out[k-1]
			continue
		}
		out[k] = string(all[offsets[k]:offsets[k+1]])
	}
	return out
}
