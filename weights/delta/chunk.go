package delta

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/klauspost/compress/zstd"

	"github.com/rondo-rl/rondo/weights/safetensors"
)

// The modes of a chunk.
const (
	sparse byte = 1 + iota
	dense
	full
)

// frameHead is what a chunk begins with: its mode and the digest of its new bytes.
const frameHead = 1 + digestSize

// maxFrame bounds a chunk of n bytes: streams that do not shrink are stored as they are.
func maxFrame(n int) int { return n + n/2 + 256 }

// width is the number of bytes that are subtracted as one integer.
func width(dtype safetensors.Dtype) int {
	switch dtype {
	case "F64", "I64", "U64":
		return 8
	case "F32", "I32", "U32", "C64":
		return 4
	case "F16", "BF16", "I16", "U16":
		return 2
	}
	return 1 // also where elements share bytes
}

// codec has the memory that encoding and decoding of one chunk after the other takes.
type codec struct {
	encoder *zstd.Encoder
	decoder *zstd.Decoder

	old, new  []byte
	frame     []byte
	positions []uint32 // of the units that changed
	values    []uint64 // their differences, zigzag
	streams   [5][]byte
	planes    []byte
	frame2    []byte // differences before they become planes
	packed    []byte
}

func newCodec() (*codec, error) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true),
		zstd.WithWindowSize(128<<10), zstd.WithAllLitEntropyCompression(true), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, err
	}
	decoder, err := newDecoder()
	if err != nil {
		return nil, errors.Join(err, encoder.Close())
	}
	return &codec{encoder: encoder, decoder: decoder}, nil
}

func (c *codec) close() error {
	c.decoder.Close()
	return c.encoder.Close()
}

// buffer gives n bytes of memory that is used again and again.
func buffer(b *[]byte, n int) []byte {
	if cap(*b) < n {
		*b = make([]byte, n)
	}
	return (*b)[:n]
}

// head begins a frame.
func (c *codec) head(mode byte, digest Digest) {
	c.frame = append(append(c.frame[:0], mode), digest[:]...)
}

// encode makes the frame of a chunk, nil when nothing changed. whole allows to store the new bytes in place of differences.
func (c *codec) encode(old, new []byte, w int, digest Digest, whole bool) []byte {
	changedBits, few := c.scan(old, new, w)
	switch {
	case few && len(c.positions) == 0:
		return nil
	case few:
		c.head(sparse, digest)
		c.encodeSparse(len(new)/w, w)
	case whole && changedBits*10 > 3*8*len(new):
		// Unrelated bf16 differ in 37 % of their bits; differences of these are harder to pack than the bytes.
		return c.encodeFull(new, w, digest)
	default:
		c.head(dense, digest)
		c.encodePlanes(c.differences(old, new, w), w)
	}
	return c.frame
}

func (c *codec) encodeFull(new []byte, w int, digest Digest) []byte {
	c.head(full, digest)
	c.encodePlanes(new, w)
	return c.frame
}

// scan collects the units that changed, and counts the bits. It stops collecting, and few is false, where more than a quarter changed.
func (c *codec) scan(old, new []byte, w int) (changedBits int, few bool) {
	limit := len(new)/w/4 + 8
	if cap(c.positions) < limit+8 {
		c.positions, c.values = make([]uint32, 0, limit+8), make([]uint64, 0, limit+8)
	}
	positions, values := c.positions[:0], c.values[:0]
	unit := uint(8 * w)
	mask := ^uint64(0) >> (64 - unit)
	shift := log2(w)
	few = true
	i := 0
	old = old[:len(new)]
	for ; i+8 <= len(new); i += 8 {
		if few && i+32 <= len(new) {
			o, n := old[i:i+32:i+32], new[i:i+32:i+32]
			if (le64(o)^le64(n))|(le64(o[8:])^le64(n[8:]))|(le64(o[16:])^le64(n[16:]))|(le64(o[24:])^le64(n[24:])) == 0 {
				i += 24
				continue
			}
		}
		a, b := le64(old[i:]), le64(new[i:])
		x := a ^ b
		if x == 0 {
			continue
		}
		changedBits += bits.OnesCount64(x)
		if len(positions) >= limit {
			few = false
			continue
		}
		for x != 0 {
			at := uint(bits.TrailingZeros64(x)) &^ (unit - 1)
			x &^= mask << (at & 63)
			positions = append(positions, uint32(i>>shift)+uint32(at>>3>>shift))
			values = append(values, zigzag((b>>(at&63))-(a>>(at&63)), unit))
		}
	}
	for ; i < len(new); i += w {
		a, b := load(old[i:], w), load(new[i:], w)
		if a == b {
			continue
		}
		changedBits += bits.OnesCount64(a ^ b)
		positions = append(positions, uint32(i>>shift))
		values = append(values, zigzag(b-a, unit))
	}
	c.positions, c.values = positions, values
	return changedBits, few
}

// apply changes old into new by a frame.
func (c *codec) apply(frame, data []byte, w int) error {
	var err error
	switch body := frame[frameHead:]; frame[0] {
	case sparse:
		err = c.applySparse(body, data, w)
	case dense:
		planes := buffer(&c.planes, len(data))
		if err = c.decodePlanes(body, planes, w); err == nil {
			addPlanes(planes, data, w)
		}
	case full:
		planes := buffer(&c.planes, len(data))
		if err = c.decodePlanes(body, planes, w); err == nil {
			joinPlanes(planes, data, w)
		}
	default:
		err = fmt.Errorf("mode %d", frame[0])
	}
	if err != nil {
		return corrupt("chunk: %w", err)
	}
	return nil
}
