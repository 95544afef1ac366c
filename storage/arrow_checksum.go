package storage

import (
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"

	"github.com/apache/arrow-go/v18/arrow"
)

// checksum is CRC-32C over a file's metadata (but the checksum) and over the content of its
// columns. zstd has checksums too, but the Arrow library stops reading before it comes to them, and
// nothing else protects the metadata.
func checksum(meta *metadata, columns []arrow.Array) string {
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	for i, key := range meta.keys {
		fmt.Fprintf(sum, "%q=%q\n", key, meta.values[i])
	}
	for _, values := range columns {
		sumArray(sum, values.Data())
	}
	return fmt.Sprintf("crc32c:%08x", sum.Sum32())
}

// sumArray adds what an array without offset holds, whatever is behind it in its buffers.
func sumArray(sum hash.Hash32, data arrow.ArrayData) {
	n := data.Len()
	sum.Write(binary.LittleEndian.AppendUint64(nil, uint64(n)))
	if n == 0 {
		return
	}
	for i, spec := range data.DataType().Layout().Buffers {
		switch {
		case spec.Kind == arrow.KindBitmap && (i > 0 || data.NullN() > 0):
			sumBits(sum, data.Buffers()[i].Bytes(), n)
		case spec.Kind == arrow.KindFixedWidth:
			length := n * spec.ByteWidth
			if hasOffsets(data.DataType().ID()) {
				length += spec.ByteWidth
			}
			sum.Write(data.Buffers()[i].Bytes()[:length])
		case spec.Kind == arrow.KindVarWidth:
			if end := binary.LittleEndian.Uint32(data.Buffers()[1].Bytes()[4*n:]); end > 0 {
				sum.Write(data.Buffers()[i].Bytes()[:end])
			}
		}
	}
	for _, child := range data.Children() {
		sumArray(sum, child)
	}
}

func hasOffsets(id arrow.Type) bool {
	return id == arrow.STRING || id == arrow.BINARY || id == arrow.LIST
}

// sumBits adds the first n bits.
func sumBits(sum hash.Hash32, bits []byte, n int) {
	sum.Write(bits[:n/8])
	if rest := n % 8; rest > 0 {
		sum.Write([]byte{bits[n/8] & (1<<rest - 1)})
	}
}
