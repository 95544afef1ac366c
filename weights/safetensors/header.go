// Package safetensors reads and writes safetensors files and checkpoints of several of them.
//
// What comes from outside is verified in its structure: a file that passes Validate has a header
// that tells the truth about the bytes that follow it. Numbers finds NaN and infinities while
// somebody reads these bytes.
//
// Files are read through io.ReaderAt in pieces and never mapped: a mapped file that somebody
// shortens kills the process, and its pages count as the process's memory.
package safetensors

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/rondo-rl/rondo/storage"
)

const (
	// DefaultMaxHeader is the limit of the format's reference
	// implementation for a header, in bytes.
	DefaultMaxHeader = 100 << 20
	maxTensors       = 1 << 20
	maxDimensions    = 32
	maxName          = 4096 // bytes
)

// Dtype is the type of a tensor's elements, by its name in the format.
type Dtype string

// The element types that this package reads values of; see bits for all.
const (
	F32  Dtype = "F32"
	BF16 Dtype = "BF16"
)

// bits is the size of an element of each type of the format.
var bits = map[Dtype]int64{
	"BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
	"U16": 16, "I16": 16, "F16": 16, BF16: 16,
	"U32": 32, "I32": 32, F32: 32,
	"U64": 64, "I64": 64, "F64": 64, "C64": 64,
	"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}

// Tensor is one entry of a header.
type Tensor struct {
	Name   string
	Dtype  Dtype
	Shape  []int64 // empty: a scalar
	Offset int64   // of the first byte, from the beginning of the file
	Size   int64   // bytes
}

// Elements is the product of the shape.
func (t *Tensor) Elements() int64 {
	n := int64(1)
	for _, length := range t.Shape {
		n *= length
	}
	return n
}

// Header describes a file whose structure has been verified.
type Header struct {
	Metadata map[string]string
	Tensors  []Tensor // in the order of their bytes
}

// Tensor finds a tensor by name.
func (h *Header) Tensor(name string) (Tensor, bool) {
	for _, t := range h.Tensors {
		if t.Name == name {
			return t, true
		}
	}
	return Tensor{}, false
}

// Validate verifies the structure of a safetensors file of size bytes, which may come from
// anywhere: a header of at most maxHeader bytes (0: DefaultMaxHeader), known types, and tensors
// that together cover the rest of the file without hole or overlap. It reads the header only.
// Errors are storage.ErrCorrupt, but for those of r.
func Validate(r io.ReaderAt, size, maxHeader int64) (*Header, error) {
	h, err := validate(r, size, maxHeader)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	return h, nil
}

func validate(r io.ReaderAt, size, maxHeader int64) (*Header, error) {
	if maxHeader == 0 {
		maxHeader = DefaultMaxHeader
	}
	text, err := readHeader(r, size, maxHeader)
	if err != nil {
		return nil, err
	}
	h, err := parseHeader(text)
	if err != nil {
		return nil, corrupt("header: %w", err)
	}
	start := 8 + int64(len(text))
	if err := h.place(start, size); err != nil {
		return nil, err
	}
	return h, nil
}

func readHeader(r io.ReaderAt, size, maxHeader int64) ([]byte, error) {
	if size < 10 {
		return nil, corrupt("a file of %d bytes", size)
	}
	var prefix [8]byte
	if _, err := r.ReadAt(prefix[:], 0); err != nil {
		return nil, fmt.Errorf("read the header's length: %w", err)
	}
	length := binary.LittleEndian.Uint64(prefix[:])
	if length > uint64(maxHeader) {
		return nil, corrupt("a header of %d bytes (limit %d)", length, maxHeader)
	}
	if length > uint64(size-8) {
		return nil, corrupt("a header of %d bytes in a file of %d", length, size)
	}
	text := make([]byte, length)
	if _, err := r.ReadAt(text, 8); err != nil && !(errors.Is(err, io.EOF) && int64(length) == size-8) {
		return nil, fmt.Errorf("read the header: %w", err)
	}
	return text, nil
}

// place checks that the tensors cover the file from start to size, and turns their offsets
// into offsets in the file.
func (h *Header) place(start, size int64) error {
	slices.SortFunc(h.Tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Size, b.Size), cmp.Compare(a.Name, b.Name))
	})
	end := int64(0)
	for i := range h.Tensors {
		t := &h.Tensors[i]
		if t.Offset != end {
			return corrupt("tensor %.80q begins at byte %d of the data, but the one before ends at %d", t.Name,
				t.Offset, end)
		}
		if t.Size > size-start-end {
			return corrupt("tensor %.80q ends at byte %d of %d bytes of data", t.Name, end+t.Size, size-start)
		}
		if err := t.checkSize(); err != nil {
			return corrupt("tensor %.80q: %w", t.Name, err)
		}
		t.Offset += start
		end += t.Size
	}
	if end != size-start {
		return corrupt("the tensors end at byte %d of %d bytes of data", end, size-start)
	}
	return nil
}

// checkSize compares the size with what type and shape make.
func (t *Tensor) checkSize() error {
	width, known := bits[t.Dtype]
	if !known {
		return fmt.Errorf("unknown type %.40q", t.Dtype)
	}
	elements := int64(1)
	for _, length := range t.Shape {
		if length < 0 {
			return fmt.Errorf("shape %v is negative", t.Shape)
		}
		if length > 0 && elements > math.MaxInt64/64/length {
			return fmt.Errorf("shape %v has too many elements", t.Shape)
		}
		elements *= length
	}
	if elements*width%8 != 0 || elements*width/8 != t.Size {
		return fmt.Errorf("shape %v of %s has %d bits, but the file holds %d bytes", t.Shape,
			t.Dtype, elements*width, t.Size)
	}
	return nil
}

// corrupt makes an error of the kind storage.ErrCorrupt.
func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %w", storage.ErrCorrupt, fmt.Errorf(format, args...))
}
