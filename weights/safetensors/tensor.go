package safetensors

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// Data is a tensor to write.
type Data struct {
	Name  string
	Dtype Dtype
	Shape []int64
	Bytes []byte // little-endian elements, the last dimension innermost
}

// NewF32 makes a tensor of 32-bit floats; the product of the shape is len(values).
func NewF32(name string, shape []int64, values []float32) Data {
	encoded := make([]byte, 0, 4*len(values))
	for _, value := range values {
		encoded = binary.LittleEndian.AppendUint32(encoded, math.Float32bits(value))
	}
	return Data{Name: name, Dtype: F32, Shape: shape, Bytes: encoded}
}

// Read reads a tensor's bytes from the file that its header was read from.
func (t *Tensor) Read(r io.ReaderAt) ([]byte, error) {
	data := make([]byte, t.Size)
	if n, err := r.ReadAt(data, t.Offset); n != len(data) {
		return nil, fmt.Errorf("read tensor %s: %w", t.Name, err)
	}
	return data, nil
}

// ReadF32 reads a tensor's elements as 32-bit floats; they are exact. The type must be F32 or BF16.
func (t *Tensor) ReadF32(r io.ReaderAt) ([]float32, error) {
	if t.Dtype != F32 && t.Dtype != BF16 {
		return nil, fmt.Errorf("read tensor %s: its type is %s, want F32 or BF16", t.Name, t.Dtype)
	}
	data, err := t.Read(r)
	if err != nil {
		return nil, err
	}
	values := make([]float32, t.Elements())
	for i := range values {
		if t.Dtype == BF16 {
			// A bfloat16 is the upper half of the 32-bit float.
			values[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*i:])) << 16)
			continue
		}
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return values, nil
}

// Write writes a safetensors file: the largest element types first, then by name, so that every
// tensor is aligned to its elements. The same tensors and metadata give the same bytes, in
// whatever order they come.
func Write(w io.Writer, tensors []Data, metadata map[string]string) error {
	if err := write(w, tensors, metadata); err != nil {
		return fmt.Errorf("write safetensors: %w", err)
	}
	return nil
}

func write(w io.Writer, tensors []Data, metadata map[string]string) error {
	ordered := slices.Clone(tensors)
	slices.SortFunc(ordered, func(a, b Data) int {
		if a, b := bits[a.Dtype], bits[b.Dtype]; a != b {
			return int(b - a)
		}
		return strings.Compare(a.Name, b.Name)
	})
	described := make([]Tensor, len(ordered))
	for i, t := range ordered {
		described[i] = Tensor{Name: t.Name, Dtype: t.Dtype, Shape: t.Shape, Size: int64(len(t.Bytes))}
	}
	header, err := encodeHeader(described, metadata)
	if err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	for _, t := range ordered {
		if _, err := w.Write(t.Bytes); err != nil {
			return err
		}
	}
	return nil
}

// encodeHeader gives length and header, padded with spaces so that the data
// begins at a multiple of 8.
func encodeHeader(tensors []Tensor, metadata map[string]string) ([]byte, error) {
	type entry struct {
		Dtype   Dtype    `json:"dtype"`
		Shape   []int64  `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	entries := map[string]any{}
	if len(metadata) > 0 {
		entries[metadataKey] = metadata
	}
	end := int64(0)
	for _, t := range tensors {
		if err := t.checkSize(); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if _, taken := entries[t.Name]; taken || t.Name == metadataKey ||
			!utf8.ValidString(t.Name) || len(t.Name) > maxName {
			return nil, fmt.Errorf("tensor %q: the name is taken, reserved, too long or not UTF-8", t.Name)
		}
		entries[t.Name] = entry{Dtype: t.Dtype, Shape: append([]int64{}, t.Shape...),
			Offsets: [2]int64{end, end + t.Size}}
		end += t.Size
	}
	text, err := json.Marshal(entries)
	if err != nil {
		return nil, err
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), nil
}
