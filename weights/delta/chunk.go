package delta

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/klauspost/compress/huff0"
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
	huffman huff0.Scratch

	old, new []byte
	frame    []byte
	changes
	streams [5][]byte
	planes  []byte
	frame2  []byte // differences before they become planes
	packed  []byte
}

func newCodec() (*codec, error) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true),
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

// encode makes the frame of a chunk, nil when nothing changed. whole allows to store the new bytes
// in place of differences.
func (c *codec) encode(old, new []byte, w int, digest Digest, whole bool) []byte {
	c.begin(len(new) / w)
	if !c.collect(old, new, w) {
		return c.encodeDense(old, new, w, digest, whole)
	}
	return c.encodeSparse(len(new)/w, w, digest)
}

func (c *codec) encodeDense(old, new []byte, w int, digest Digest, whole bool) []byte {
	if whole && c.unrelated(old, new) {
		return c.encodeFull(new, w, digest)
	}
	c.head(dense, digest)
	c.encodePlanes(c.differences(old, new, w), w)
	return c.frame
}

func (c *codec) encodeFull(new []byte, w int, digest Digest) []byte {
	c.head(full, digest)
	c.encodePlanes(new, w)
	return c.frame
}

// unrelated reports whether so many bits differ that the new bytes pack better than differences:
// unrelated bf16 differ in 37 % of their bits.
func (c *codec) unrelated(old, new []byte) bool {
	changedBits := 0
	for i := 0; 8*i < len(new); i++ {
		changedBits += bits.OnesCount64(wordAt(old, i) ^ wordAt(new, i))
	}
	return changedBits*10 > 3*8*len(new)
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
