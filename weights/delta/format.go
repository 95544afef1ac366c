// Package delta says what changed between two checkpoints, losslessly and in a few
// per cent of their bytes.
//
// A delta holds the headers of the new files and, for each of their tensors, chunks of 4 MiB. A
// chunk is unchanged (no bytes), sparse (where elements changed and by how much), dense (all
// differences) or full. Its own statistics choose: the number of elements that changed and of their
// bits. A difference is one of integers of the element's width, with wrap-around: so differences of
// several deltas add up, and Fold makes one delta of them without a checkpoint.
//
// Layout: magic; the chunks one after the other; the index, JSON in a zstd frame; a footer with the
// index's sizes and digest. It is written as a stream and read at random: the footer leads to the
// index, the index to any tensor.
//
// Digests are xxh3-128: of a chunk, and of a tensor over the digests of its chunks. They find
// damage, a base that is another one, and faults of this package, at the speed of memory. They stop
// no attacker: who fetches a delta compares its SHA-256 with the manifest's.
package delta

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/klauspost/compress/zstd"
	"github.com/zeebo/xxh3"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

const (
	// Extension is that of a delta's file.
	Extension = ".rondodelta"
	// ChunkSize is the number of bytes of a tensor that are encoded together.
	ChunkSize = 4 << 20

	magic      = "RONDODW1"
	footerSize = 8 + 8 + 16 + 8 // size of the index, size of its text, digest of the index, magic
	maxIndex   = 128 << 20      // bytes of the index's text
	digestSize = 16
)

// Digest is an xxh3-128, written in hexadecimal.
type Digest [digestSize]byte

// MarshalText writes hexadecimal digits.
func (d Digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText reads hexadecimal digits.
func (d *Digest) UnmarshalText(text []byte) error {
	if len(text) != 2*digestSize {
		return fmt.Errorf("a digest of %d digits", len(text))
	}
	_, err := hex.Decode(d[:], text)
	return err
}

func digestOf(data []byte) Digest { return xxh3.Hash128(data).Bytes() }

// digestOfAll is a tensor's digest: over those of its chunks.
func digestOfAll(chunks []Digest) Digest {
	h := xxh3.New128()
	for i := range chunks {
		_, _ = h.Write(chunks[i][:]) // a hash takes everything
	}
	return h.Sum128().Bytes()
}

// Tensor is what a delta says of one tensor of the new checkpoint.
type Tensor struct {
	safetensors.Tensor        // as in its new file
	File               string // the new file
	From               string // the base's tensor; "" when the delta holds the tensor whole
	Old                Digest // of the base's tensor, unless From is ""
	New                Digest

	offset int64    // of the first chunk, in the delta
	sizes  []uint32 // of each chunk in the delta; 0: unchanged
}

// Bytes is the tensor's part of the delta.
func (t *Tensor) Bytes() int64 {
	total := int64(0)
	for _, size := range t.sizes {
		total += int64(size)
	}
	return total
}

func (t *Tensor) chunks() int { return int((t.Size + ChunkSize - 1) / ChunkSize) }

// chunkSize is the number of the tensor's bytes in a chunk.
func (t *Tensor) chunkSize(i int) int {
	return int(min(ChunkSize, t.Size-int64(i)*ChunkSize))
}

// Delta is an open delta whose index has been verified.
type Delta struct {
	Tensors []*Tensor // in the order of the new files' bytes

	files []newFile
	r     io.ReaderAt
}

// newFile is one file of the new checkpoint: everything before its tensors' bytes, and its size.
type newFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	Header []byte `json:"header"`
}

type index struct {
	Files   []newFile     `json:"files"`
	Tensors []indexTensor `json:"tensors"`
}

type indexTensor struct {
	Name  string   `json:"name"`
	From  string   `json:"from,omitempty"`
	Old   *Digest  `json:"old,omitempty"`
	New   Digest   `json:"new"`
	Sizes []uint32 `json:"sizes,omitempty"` // none: all chunks are unchanged
}

// Open reads the index of a delta of size bytes, which may come from anywhere. Errors are
// storage.ErrCorrupt, but for those of r.
func Open(r io.ReaderAt, size int64) (*Delta, error) {
	d, err := open(r, size)
	if err != nil {
		return nil, fmt.Errorf("open delta: %w", err)
	}
	return d, nil
}

func open(r io.ReaderAt, size int64) (*Delta, error) {
	text, end, err := readIndex(r, size)
	if err != nil {
		return nil, err
	}
	var parsed index
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&parsed); err != nil {
		return nil, corrupt("index: %w", err)
	}
	d := &Delta{r: r, files: parsed.Files}
	if err := d.place(parsed.Tensors, end); err != nil {
		return nil, err
	}
	return d, nil
}

// readIndex gives the index's text, and where the chunks end.
func readIndex(r io.ReaderAt, size int64) ([]byte, int64, error) {
	if size < int64(len(magic))+footerSize {
		return nil, 0, corrupt("a file of %d bytes", size)
	}
	head, foot := make([]byte, len(magic)), make([]byte, footerSize)
	if err := readAt(r, head, 0); err != nil {
		return nil, 0, err
	}
	if err := readAt(r, foot, size-footerSize); err != nil {
		return nil, 0, err
	}
	if string(head) != magic || string(foot[32:]) != magic {
		return nil, 0, corrupt("it does not begin and end with %s", magic)
	}
	stored, length := binary.LittleEndian.Uint64(foot), binary.LittleEndian.Uint64(foot[8:])
	if stored > uint64(size-footerSize-int64(len(magic))) || stored > maxIndex || length > maxIndex {
		return nil, 0, corrupt("an index of %d bytes, of text %d, in a file of %d", stored, length, size)
	}
	end := size - footerSize - int64(stored)
	packed := make([]byte, stored)
	if err := readAt(r, packed, end); err != nil {
		return nil, 0, err
	}
	if digestOf(packed) != Digest(foot[16:32]) {
		return nil, 0, corrupt("the index has another digest")
	}
	decoder, err := newDecoder()
	if err != nil {
		return nil, 0, err
	}
	defer decoder.Close()
	text, err := decoder.DecodeAll(packed, make([]byte, 0, length))
	if err != nil || uint64(len(text)) != length {
		return nil, 0, corrupt("the index is no frame of %d bytes: %w", length, err)
	}
	return text, end, nil
}

func newDecoder() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderMaxMemory(maxIndex), zstd.WithDecoderLowmem(true))
}

func readAt(r io.ReaderAt, data []byte, offset int64) error {
	n, err := r.ReadAt(data, offset)
	if n == len(data) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return corrupt("it ends at byte %d", offset+int64(n))
	}
	return fmt.Errorf("read at byte %d: %w", offset, err)
}

// place checks the tensors against the new files' headers, and their chunks against
// the place that there is.
func (d *Delta) place(entries []indexTensor, end int64) error {
	checkpoint, err := d.layout()
	if err != nil {
		return err
	}
	at, next := int64(len(magic)), 0
	for _, file := range checkpoint.Files {
		for _, described := range file.Tensors {
			if next == len(entries) || entries[next].Name != described.Name {
				return corrupt("tensor %.80q of %s has no entry in its place", described.Name, file.Name)
			}
			entry := entries[next]
			next++
			t := &Tensor{Tensor: described, File: file.Name, From: entry.From, New: entry.New,
				offset: at, sizes: entry.Sizes}
			if entry.Old != nil {
				t.Old = *entry.Old
			}
			if err := t.check(entry); err != nil {
				return corrupt("tensor %.80q: %w", t.Name, err)
			}
			if at += t.Bytes(); at > end {
				return corrupt("tensor %.80q ends behind the chunks", t.Name)
			}
			d.Tensors = append(d.Tensors, t)
		}
	}
	if next != len(entries) || at != end {
		return corrupt("%d of %d entries, and chunks up to byte %d of %d", next, len(entries), at, end)
	}
	return nil
}

func (t *Tensor) check(entry indexTensor) error {
	switch {
	case (entry.Old == nil) != (entry.From == ""):
		return errors.New("a base's tensor without its digest, or a digest without its tensor")
	case entry.Sizes == nil:
		t.sizes = make([]uint32, t.chunks())
	case len(entry.Sizes) != t.chunks():
		return fmt.Errorf("%d chunks in place of %d", len(entry.Sizes), t.chunks())
	}
	for i, size := range t.sizes {
		if size > 0 && size <= frameHead || int(size) > maxFrame(t.chunkSize(i)) || size == 0 && t.From == "" {
			return fmt.Errorf("chunk %d has %d bytes", i, size)
		}
	}
	return nil
}

// layout is the new checkpoint by its headers. Its files have no tensors' bytes.
func (d *Delta) layout() (*safetensors.Checkpoint, error) {
	files := make([]*safetensors.File, len(d.files))
	for i, f := range d.files {
		if !plainName(f.Name) || f.Size < 0 || f.Size > math.MaxInt64/int64(len(d.files)) {
			return nil, corrupt("file %.140q of %d bytes", f.Name, f.Size)
		}
		file, err := safetensors.NewFile(f.Name, bytes.NewReader(f.Header), f.Size)
		if err != nil {
			return nil, corrupt("%w", err)
		}
		if file.DataOffset() != int64(len(f.Header)) {
			return nil, corrupt("file %s: a header of %d bytes before byte %d", f.Name,
				len(f.Header), file.DataOffset())
		}
		files[i] = file
	}
	return safetensors.NewCheckpoint(files...)
}

// plainName reports whether a file of this name stays in its folder.
func plainName(name string) bool {
	if len(name) > 200 || len(name) <= len(safetensors.Extension) ||
		name[len(name)-len(safetensors.Extension):] != safetensors.Extension || name[0] == '.' {
		return false
	}
	for _, c := range []byte(name) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}

// corrupt makes an error of the kind storage.ErrCorrupt.
func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %w", storage.ErrCorrupt, fmt.Errorf(format, args...))
}
