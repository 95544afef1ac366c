package delta

import (
	"encoding/binary"
	"errors"

	"github.com/klauspost/compress/huff0"
)

// Streams hold hardly anything that repeats, and the search for repetitions takes zstd longer than
// the Huffman coding of what is left. So large streams become zstd frames of literals alone, which
// every decoder of the format reads (RFC 8878). Those that shrink to a fifth may have more to
// find: they go the long way.

const (
	leastHuffman = 4 << 10   // bytes of a stream
	literals     = 128 << 10 // bytes of a block, which may be no larger
)

// squeeze gives a zstd frame of data, in memory that is used again.
func (c *codec) squeeze(data []byte) []byte {
	if len(data) >= leastHuffman {
		if frame := c.literalsFrame(data); len(frame)*5 > len(data) {
			return frame
		}
	}
	return c.encoder.EncodeAll(data, c.packed[:0])
}

// literalsFrame makes a frame of one segment and without a checksum, of blocks without sequences.
func (c *codec) literalsFrame(data []byte) []byte {
	frame := binary.LittleEndian.AppendUint32(c.packed[:0], 0xfd2fb528)
	// a content size of four bytes
	frame = binary.LittleEndian.AppendUint32(append(frame, 2<<6|1<<5), uint32(len(data)))
	c.huffman.Reuse = huff0.ReusePolicyNone
	for len(data) > 0 {
		block := data[:min(literals, len(data))]
		data = data[len(block):]
		frame = c.literalsBlock(frame, block, len(data) == 0)
	}
	return frame
}

const (
	blockRaw        = 0
	blockRLE        = 1
	blockCompressed = 2

	literalsHead = 5 // bytes in front of literals in four streams, whose lengths have 18 bits
)

func (c *codec) literalsBlock(frame, block []byte, last bool) []byte {
	packed, _, err := huff0.Compress4X(block, &c.huffman)
	size := literalsHead + len(packed) + 1
	switch {
	case errors.Is(err, huff0.ErrUseRLE):
		return append(appendBlock(frame, blockRLE, len(block), last), block[0])
	case err != nil || size >= len(block):
		return append(appendBlock(frame, blockRaw, len(block), last), block...)
	}
	frame = appendBlock(frame, blockCompressed, size, last)
	head := uint64(2 | 3<<2 | len(block)<<4 | len(packed)<<22) // compressed, with lengths of 18 bits
	frame = append(frame, byte(head), byte(head>>8), byte(head>>16), byte(head>>24), byte(head>>32))
	return append(append(frame, packed...), 0) // no sequences
}

func appendBlock(frame []byte, kind, size int, last bool) []byte {
	head := kind<<1 | size<<3
	if last {
		head |= 1
	}
	return append(frame, byte(head), byte(head>>8), byte(head>>16))
}
