package storage

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	flatbuffers "github.com/google/flatbuffers/go"
	"github.com/klauspost/compress/zstd"
)

// The Arrow library makes a compressor of several MiB for every file, and two copies of every
// buffer. So it only writes the frame of a file, with empty record batches, and those that take
// their places are written here, with compressors that are used again.

// compressor is safe for use by many goroutines. The frame's own checksum is left out, as the
// metadata hold one of everything.
var compressor = func() *zstd.Encoder {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(false))
	if err != nil {
		panic(err) // only options can be wrong
	}
	return encoder
}()

// arrowV5 is the metadata version of Arrow 1.0 and later.
const arrowV5 = 4

// part is a record batch as it is in a file.
type part struct{ message, body []byte }

func (p part) size() int { return len(p.message) + len(p.body) }

func writePart(columns []arrow.Array, rows int) part {
	b := &body{}
	for _, column := range columns {
		b.add(column.Data())
	}
	return part{b.message(int64(rows)), b.bytes}
}

// writeFile lays record batches, at least one, out as an Arrow IPC file.
func writeFile(schema *arrow.Schema, parts []part) ([]byte, error) {
	frame, err := fileFrame(schema, len(parts))
	if err != nil {
		return nil, err
	}
	footer := footerOf(frame)
	offset, _, _ := blockOf(blockAt(footer, 0))
	lastOffset, lastHeader, lastBody := blockOf(blockAt(footer, len(parts)-1))
	rest := frame[lastOffset+lastHeader+lastBody:]
	size := int(offset) + len(rest)
	for _, p := range parts {
		size += p.size()
	}
	file := append(make([]byte, 0, size), frame[:offset]...)
	for i, p := range parts {
		block := blockAt(footer, i)
		binary.LittleEndian.PutUint64(block, uint64(len(file)))
		binary.LittleEndian.PutUint32(block[8:], uint32(len(p.message)))
		binary.LittleEndian.PutUint64(block[16:], uint64(len(p.body)))
		file = append(append(file, p.message...), p.body...)
	}
	return append(file, rest...), nil
}

// frames are those that the library wrote lately. Files of the same columns whose metadata are
// as long have the same frame but for the texts themselves, and to write it takes a quarter of
// the time of a small file.
var frames = struct {
	sync.Mutex
	known map[string]*frameForm
}{known: map[string]*frameForm{}}

// maxFrames is how many are kept: a run has some tens of lengths, of the digits of its numbers.
const maxFrames = 256

// frameForm is a frame, and where in it each text of the metadata is.
type frameForm struct {
	bytes  []byte
	places [][2]int
}

// fileFrame makes a file with the schema and record batches without rows, as the library does.
func fileFrame(schema *arrow.Schema, batches int) ([]byte, error) {
	texts := schema.Metadata().Values()
	key := frameKey(schema, batches)
	frames.Lock()
	form := frames.known[key]
	frames.Unlock()
	if form != nil {
		frame := bytes.Clone(form.bytes)
		for i, text := range texts {
			for _, at := range form.places[i] {
				copy(frame[at:], text)
			}
		}
		return frame, nil
	}
	frame, err := writeFrame(schema, batches)
	if err != nil {
		return nil, err
	}
	form = &frameForm{bytes: bytes.Clone(frame), places: make([][2]int, len(texts))}
	message, footer := textsOf(frame)
	for i := range texts {
		form.places[i] = [2]int{message(i), footer(i)}
	}
	frames.Lock()
	defer frames.Unlock()
	if len(frames.known) >= maxFrames {
		clear(frames.known)
	}
	frames.known[key] = form
	return frame, nil
}

// frameKey names all that a frame follows from, but the texts of its metadata.
func frameKey(schema *arrow.Schema, batches int) string {
	key := strconv.AppendInt(nil, int64(batches), 10)
	for _, field := range schema.Fields() {
		key = append(append(append(key, ' '), field.Name...), field.Type.Fingerprint()...)
		key = strconv.AppendBool(key, field.Nullable)
	}
	texts := schema.Metadata()
	for i, name := range texts.Keys() {
		key = append(append(key, ' '), name...)
		key = strconv.AppendInt(append(key, '='), int64(len(texts.Values()[i])), 10)
	}
	return string(key)
}

// textsOf finds the texts of the metadata in a frame: those of the schema's message in front,
// and those of the footer.
func textsOf(frame []byte) (message, footer func(i int) int) {
	const front = 16 // magic with its padding, continuation, length
	schema, _ := subTable(rootTable(frame[front:]), messageHeader)
	end := footerOf(frame)
	inFooter, _ := subTable(end, footerSchema)
	return func(i int) int { return front + textAt(schema, i) },
		func(i int) int { return len(frame) - len(arrowMagic) - 4 - len(end.Bytes) + textAt(inFooter, i) }
}

// textAt is where the value of an entry of a schema's metadata begins.
func textAt(schema flatbuffers.Table, i int) int {
	entry := element(schema, schemaMetadata, i)
	return int(entry.Vector(flatbuffers.UOffsetT(entry.Offset(entryValue))))
}

// writeFrame has the library write it.
func writeFrame(schema *arrow.Schema, batches int) ([]byte, error) {
	columns := make([]arrow.Array, schema.NumFields())
	for i, field := range schema.Fields() {
		columns[i] = array.MakeArrayOfNull(memory.DefaultAllocator, field.Type, 0)
	}
	var frame bytes.Buffer
	writer, err := ipc.NewFileWriter(&frame, ipc.WithSchema(schema))
	if err != nil {
		return nil, err
	}
	empty := array.NewRecordBatch(schema, columns, 0)
	for range batches {
		if err := writer.Write(empty); err != nil {
			return nil, err
		}
	}
	err = writer.Close()
	return frame.Bytes(), err
}

// blockOf reads a footer's block {offset int64, metadata length int32, padding, body length int64}.
func blockOf(block []byte) (offset, header, body int64) {
	return int64At(block, 0), int64(int32(binary.LittleEndian.Uint32(block[8:]))), int64At(block, 16)
}

// body is a record batch on its way into a file: compressed buffers one after the
// other, and where each lies.
type body struct {
	bytes   []byte
	nodes   [][2]int64 // entries and nulls of each array, parents before children
	buffers [][2]int64 // offset and length of each buffer
}

// add appends an array without offset, and its children.
func (b *body) add(data arrow.ArrayData) {
	b.nodes = append(b.nodes, [2]int64{int64(data.Len()), int64(data.NullN())})
	for i, spec := range data.DataType().Layout().Buffers {
		var content []byte
		if buffer := data.Buffers()[i]; buffer != nil && (spec.Kind != arrow.KindBitmap || i > 0 || data.NullN() > 0) {
			content = buffer.Bytes()
		}
		b.addBuffer(content)
	}
	for _, child := range data.Children() {
		b.add(child)
	}
}

// addBuffer appends a compressed buffer: its length (-1: stored as it is), then one zstd frame.
func (b *body) addBuffer(content []byte) {
	start := len(b.bytes)
	if len(content) > 0 {
		b.bytes = binary.LittleEndian.AppendUint64(b.bytes, uint64(len(content)))
		b.bytes = compressor.EncodeAll(content, b.bytes)
		if len(b.bytes)-start-8 >= len(content) {
			b.bytes = append(binary.LittleEndian.AppendUint64(b.bytes[:start], ^uint64(0)), content...)
		}
	}
	b.buffers = append(b.buffers, [2]int64{int64(start), int64(len(b.bytes) - start)})
	for len(b.bytes)%8 != 0 {
		b.bytes = append(b.bytes, 0)
	}
}

// message makes the encapsulated header: continuation, length, and the flatbuffer Message of
// Message.fbs, padded to eight bytes.
func (b *body) message(rows int64) []byte {
	f := flatbuffers.NewBuilder(1024 + 16*(len(b.nodes)+len(b.buffers)))
	nodes, buffers := pairs(f, b.nodes), pairs(f, b.buffers)
	f.StartObject(2) // BodyCompression{codec, method}
	f.PrependInt8Slot(0, zstdCodec, 0)
	compression := f.EndObject()
	f.StartObject(4) // RecordBatch{length, nodes, buffers, compression}
	f.PrependInt64Slot(0, rows, 0)
	f.PrependUOffsetTSlot(1, nodes, 0)
	f.PrependUOffsetTSlot(2, buffers, 0)
	f.PrependUOffsetTSlot(3, compression, 0)
	batch := f.EndObject()
	f.StartObject(4) // Message{version, header type, header, body length}
	f.PrependInt64Slot(3, int64(len(b.bytes)), 0)
	f.PrependUOffsetTSlot(2, batch, 0)
	f.PrependInt16Slot(0, arrowV5, 0)
	f.PrependByteSlot(1, recordBatchHeader, 0)
	f.Finish(f.EndObject())
	table := f.FinishedBytes()
	size := (len(table) + 7) / 8 * 8
	message := make([]byte, 8, 8+size)
	binary.LittleEndian.PutUint32(message, continuation)
	binary.LittleEndian.PutUint32(message[4:], uint32(size))
	return append(message, table...)[:8+size]
}

// pairs writes a vector of structs of two int64.
func pairs(f *flatbuffers.Builder, all [][2]int64) flatbuffers.UOffsetT {
	f.StartVector(16, len(all), 8)
	for i := len(all) - 1; i >= 0; i-- {
		f.Prep(8, 16)
		f.PrependInt64(all[i][1])
		f.PrependInt64(all[i][0])
	}
	return f.EndVector(len(all))
}
