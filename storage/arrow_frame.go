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
)

// frames are those that the library wrote lately. Files of the same columns whose metadata are as long have the same frame but for the texts
// themselves, and to write it takes a quarter of the time of a small file.
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

// textsOf finds the texts of the metadata in a frame: those of the schema's message in front, and those of the footer.
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

// textOf is a text of an entry.
func textOf(entry flatbuffers.Table, slot flatbuffers.VOffsetT) string {
	offset := flatbuffers.UOffsetT(entry.Offset(slot))
	if offset == 0 {
		return ""
	}
	return string(entry.ByteVector(entry.Pos + offset))
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
