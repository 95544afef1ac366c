package storage

import (
	"encoding/binary"

	"github.com/apache/arrow-go/v18/arrow"
	flatbuffers "github.com/google/flatbuffers/go"
	"github.com/klauspost/compress/zstd"
)

// The Arrow library makes a compressor of several MiB for every file, and two copies of every buffer. So it only writes the frame of a
// file, with empty record batches, and those that take their places are written here, with compressors that are used again.

// compressor is safe for use by many goroutines. The frame's own checksum is left out, as the metadata hold one of everything.
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

// body is a record batch on its way into a file: compressed buffers one after the other, and where each lies.
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

// message makes the encapsulated header: continuation, length, and the flatbuffer Message of Message.fbs, padded to eight bytes.
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
