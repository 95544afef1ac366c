package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	flatbuffers "github.com/google/flatbuffers/go"
	"github.com/klauspost/compress/zstd"
)

// The Arrow library allocates what a file's flatbuffers claim (the number of a field's children,
// the length of a buffer) and follows nested types as deep as they go. So the claims are checked
// here first, over the same bytes, before it sees them.
const (
	maxArrowFooter  = 64 << 10
	maxArrowHeader  = 64 << 10
	maxArrowFields  = 64
	maxArrowDepth   = 4
	maxArrowEntries = 64       // of metadata
	maxArrowBuffers = 256      // of the record batch
	maxArrowWindow  = 64 << 20 // bytes that a zstd stream may look back

	zstdCodec         = 1
	continuation      = 0xffffffff
	recordBatchHeader = 3
)

var arrowMagic = []byte("ARROW1")

// Slots of the flatbuffer tables of the Arrow format (format/File.fbs, Schema.fbs,
// Message.fbs), in bytes of the vtable.
const (
	footerSchema, footerDictionaries, footerRecordBatches, footerMetadata  = 6, 8, 10, 12
	schemaFields, schemaMetadata                                           = 6, 8
	fieldTypeKind, fieldDictionary, fieldChildren, fieldMetadata           = 8, 12, 14, 16
	messageHeaderKind, messageHeader, messageMetadata                      = 6, 8, 12
	batchLength, batchNodes, batchBuffers, batchCompression, batchVariadic = 4, 6, 8, 10, 12
	compressionCodec                                                       = 4
	entryKey, entryValue                                                   = 4, 6
)

// arrowKinds are the types that the files use, by their number in the union Type of Schema.fbs.
var arrowKinds = map[byte]bool{2: true /* Int */, 3: true /* FloatingPoint */, 4: true, /* Binary */
	5: true /* Utf8 */, 6: true, /* Bool */
	10: true /* Timestamp */, 12: true /* List */, 13: true /* Struct */, 18: true /* Duration */}

// checkArrow checks footer, schema and record batch headers of a file against the limits. It may
// panic on offsets that lead nowhere.
func checkArrow(file []byte, maxBatches int) error {
	if len(file) < 2*len(arrowMagic)+12 || !bytes.HasPrefix(file, arrowMagic) {
		return errors.New("it does not begin like an Arrow IPC file")
	}
	if !bytes.HasSuffix(file, arrowMagic) {
		return errors.New("it does not end like an Arrow IPC file; it may be cut off")
	}
	sizeAt := len(file) - len(arrowMagic) - 4
	size := int64(binary.LittleEndian.Uint32(file[sizeAt:]))
	if size < 8 || size > maxArrowFooter || size > int64(sizeAt-8) {
		return fmt.Errorf("a footer of %d bytes in a file of %d (limit %d)", size, len(file), maxArrowFooter)
	}
	footer := footerOf(file)
	if n := vectorLen(footer, footerDictionaries); n != 0 {
		return fmt.Errorf("%d dictionaries; plain columns are expected", n)
	}
	batches := vectorLen(footer, footerRecordBatches)
	if batches < 1 || batches > maxBatches {
		return fmt.Errorf("%d record batches, want 1 to %d", batches, maxBatches)
	}
	if n := vectorLen(footer, footerMetadata); n > maxArrowEntries {
		return fmt.Errorf("%d entries of footer metadata (limit %d)", n, maxArrowEntries)
	}
	if err := checkArrowSchema(footer); err != nil {
		return err
	}
	for i := range batches {
		if err := checkArrowBlock(file, blockAt(footer, i)); err != nil {
			return err
		}
	}
	return nil
}

// blockSize is that of a footer's Block.
const blockSize = 24

// blockAt is a footer's block of the i-th record batch.
func blockAt(footer flatbuffers.Table, i int) []byte {
	return footer.Bytes[int(vectorStart(footer, footerRecordBatches))+blockSize*i:][:blockSize]
}

// footerOf finds the footer of a file that is long enough for the one it claims.
func footerOf(file []byte) flatbuffers.Table {
	sizeAt := len(file) - len(arrowMagic) - 4
	return rootTable(file[sizeAt-int(binary.LittleEndian.Uint32(file[sizeAt:])) : sizeAt])
}

func checkArrowSchema(footer flatbuffers.Table) error {
	schema, ok := subTable(footer, footerSchema)
	if !ok {
		return errors.New("no schema")
	}
	if n := vectorLen(schema, schemaMetadata); n > maxArrowEntries {
		return fmt.Errorf("%d entries of metadata (limit %d)", n, maxArrowEntries)
	}
	left := maxArrowFields
	return checkArrowFields(schema, schemaFields, maxArrowDepth, &left)
}

// checkArrowFields walks the fields of a schema or the children of a field, at most left of them.
func checkArrowFields(parent flatbuffers.Table, slot flatbuffers.VOffsetT, depth int, left *int) error {
	n := vectorLen(parent, slot)
	if n > *left {
		return fmt.Errorf("more than %d fields", maxArrowFields)
	}
	if n > 0 && depth == 0 {
		return fmt.Errorf("types nest deeper than %d", maxArrowDepth)
	}
	*left -= n
	for i := range n {
		field := element(parent, slot, i)
		if kind := byteAt(field, fieldTypeKind); !arrowKinds[kind] {
			return fmt.Errorf("a field has the type number %d, which these files do not use", kind)
		}
		if vectorLen(field, fieldMetadata) != 0 || field.Offset(fieldDictionary) != 0 {
			return errors.New("a field has metadata or a dictionary")
		}
		if err := checkArrowFields(field, fieldChildren, depth-1, left); err != nil {
			return err
		}
	}
	return nil
}

// checkArrowBlock checks the message that a footer's block names.
func checkArrowBlock(file, block []byte) error {
	offset, header, body := blockOf(block)
	size := int64(len(file))
	if offset < 8 || header < 16 || header > maxArrowHeader || body < 0 || offset > size || body > size ||
		offset+header+body > size {
		return fmt.Errorf("the record batch is at %d with %d + %d bytes in a file of %d bytes", offset, header, body,
			size)
	}
	message := file[offset : offset+header]
	if binary.LittleEndian.Uint32(message) != continuation ||
		int64(binary.LittleEndian.Uint32(message[4:])) > header-8 {
		return errors.New("the record batch has no valid header")
	}
	table := rootTable(message[8:])
	if kind := byteAt(table, messageHeaderKind); kind != recordBatchHeader || vectorLen(table, messageMetadata) != 0 {
		return fmt.Errorf("a message of kind %d in place of the record batch", kind)
	}
	batch, ok := subTable(table, messageHeader)
	if !ok {
		return errors.New("the record batch has no header")
	}
	return checkArrowBuffers(batch, file[offset+header:offset+header+body])
}

func checkArrowBuffers(batch flatbuffers.Table, body []byte) error {
	nodes, buffers := vectorLen(batch, batchNodes), vectorLen(batch, batchBuffers)
	if nodes > maxArrowBuffers || buffers > maxArrowBuffers || vectorLen(batch, batchVariadic) != 0 {
		return fmt.Errorf("%d columns in %d buffers (limit %d)", nodes, buffers, maxArrowBuffers)
	}
	for i := range nodes {
		at := int(vectorStart(batch, batchNodes)) + 16*i
		if length, nulls := int64At(batch.Bytes, at), int64At(batch.Bytes, at+8); length < 0 ||
			length > MaxArrowTokens || nulls < 0 || nulls > length {
			return fmt.Errorf("column %d has %d entries, %d of them null (limit %d)", i, length, nulls, MaxArrowTokens)
		}
	}
	compression, compressed := subTable(batch, batchCompression)
	if compressed && byteAt(compression, compressionCodec) != zstdCodec {
		return errors.New("compressed by something else than zstd")
	}
	total := int64(0)
	for i := range buffers {
		at := int(vectorStart(batch, batchBuffers)) + 16*i
		offset, length := int64At(batch.Bytes, at), int64At(batch.Bytes, at+8)
		if offset < 0 || length < 0 || offset > int64(len(body)) || length > int64(len(body))-offset {
			return fmt.Errorf("buffer %d is at %d with %d bytes in a body of %d bytes", i, offset, length, len(body))
		}
		if !compressed || length == 0 {
			continue
		}
		size, err := checkArrowBuffer(body[offset : offset+length])
		if err != nil {
			return fmt.Errorf("buffer %d: %w", i, err)
		}
		if total += size; total > maxArrowDecoded {
			return fmt.Errorf("it decompresses to more than %d bytes", maxArrowDecoded)
		}
	}
	return nil
}

// checkArrowBuffer gives the claimed size of a compressed buffer: a length (-1: stored as it
// is), then one zstd frame.
func checkArrowBuffer(buffer []byte) (int64, error) {
	if len(buffer) < 8 {
		return 0, fmt.Errorf("%d bytes", len(buffer))
	}
	size := int64At(buffer, 0)
	if size == -1 {
		return int64(len(buffer)) - 8, nil
	}
	var frame zstd.Header
	if err := frame.Decode(buffer[8:]); err != nil {
		return 0, fmt.Errorf("zstd: %w", err)
	}
	if size < 0 || size > maxArrowDecoded || frame.HasFCS && frame.FrameContentSize != uint64(size) ||
		!frame.SingleSegment && frame.WindowSize > maxArrowWindow {
		return 0, fmt.Errorf("it claims %d bytes, with a zstd window of %d bytes", size, frame.WindowSize)
	}
	return size, nil
}

func rootTable(data []byte) flatbuffers.Table {
	return flatbuffers.Table{Bytes: data, Pos: flatbuffers.GetUOffsetT(data)}
}

func vectorLen(t flatbuffers.Table, slot flatbuffers.VOffsetT) int {
	offset := flatbuffers.UOffsetT(t.Offset(slot))
	if offset == 0 {
		return 0
	}
	return t.VectorLen(offset)
}

// vectorStart is the place of the first element; the vector must not be empty.
func vectorStart(t flatbuffers.Table, slot flatbuffers.VOffsetT) flatbuffers.UOffsetT {
	return t.Vector(flatbuffers.UOffsetT(t.Offset(slot)))
}

func subTable(t flatbuffers.Table, slot flatbuffers.VOffsetT) (flatbuffers.Table, bool) {
	offset := flatbuffers.UOffsetT(t.Offset(slot))
	if offset == 0 {
		return flatbuffers.Table{}, false
	}
	return flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(t.Pos + offset)}, true
}

func element(t flatbuffers.Table, slot flatbuffers.VOffsetT, i int) flatbuffers.Table {
	return flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(vectorStart(t, slot) + flatbuffers.UOffsetT(4*i))}
}

func byteAt(t flatbuffers.Table, slot flatbuffers.VOffsetT) byte {
	offset := flatbuffers.UOffsetT(t.Offset(slot))
	if offset == 0 {
		return 0
	}
	return t.GetByte(t.Pos + offset)
}

func int64At(data []byte, at int) int64 {
	return int64(binary.LittleEndian.Uint64(data[at:]))
}
