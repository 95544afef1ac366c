package safetensors

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Streamed is a tensor to write whose bytes are made while they are written.
type Streamed struct {
	Name    string
	Dtype   Dtype
	Shape   []int64
	WriteTo func(w io.Writer) error // as many bytes as type and shape make
}

// WriteStreamed is Write of tensors that are never in memory as a whole. WriteTo is called
// in the order of the file.
func WriteStreamed(w io.Writer, tensors []Streamed, metadata map[string]string) error {
	if err := writeStreamed(w, tensors, metadata); err != nil {
		return fmt.Errorf("write safetensors: %w", err)
	}
	return nil
}

func writeStreamed(w io.Writer, tensors []Streamed, metadata map[string]string) error {
	ordered := slices.Clone(tensors)
	slices.SortFunc(ordered, func(a, b Streamed) int {
		return cmp.Or(cmp.Compare(bits[b.Dtype], bits[a.Dtype]), strings.Compare(a.Name, b.Name))
	})
	described := make([]Tensor, len(ordered))
	for i, t := range ordered {
		described[i] = Tensor{Name: t.Name, Dtype: t.Dtype, Shape: t.Shape}
		described[i].Size = (described[i].Elements()*bits[t.Dtype] + 7) / 8
	}
	header, err := encodeHeader(described, metadata)
	if err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	for i, t := range ordered {
		counted := &count{w: w}
		if err := t.WriteTo(counted); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if counted.n != described[i].Size {
			return fmt.Errorf("tensor %q: %d bytes were written, want %d", t.Name, counted.n, described[i].Size)
		}
	}
	return nil
}

// count counts what is written.
type count struct {
	w io.Writer
	n int64
}

func (c *count) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
