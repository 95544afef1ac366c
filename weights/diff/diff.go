// Package diff says which elements of a policy's tensors two versions differ in. It reads both by
// ranges, and holds two pieces in memory.
package diff

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// piece is what is read at once of each version, in bytes: a multiple of every element's size.
const piece = 4 << 20

// maxHeader bounds the headers of both versions, as those of published files.
const maxHeader = 16 << 20

// Tensor is what has become of a tensor.
type Tensor struct {
	Name     string `json:"name"`
	Elements int64  `json:"elements"`
	Changed  int64  `json:"changed"`
	Bytes    int64  `json:"bytes"` // of all elements
	// What says of a tensor whose elements cannot be compared why: added, removed, or
	// of another type or shape.
	What string `json:"what,omitempty"`
}

// Fraction is the part of the elements that changed.
func (t Tensor) Fraction() float64 { return float64(t.Changed) / float64(max(1, t.Elements)) }

// Report is what two versions differ in.
type Report struct {
	From    int64    `json:"from"`
	To      int64    `json:"to"`
	Sum     Tensor   `json:"sum"`
	Layers  []Tensor `json:"layers"`  // sums by the number in the tensors' names; Name is that, "" for the rest
	Tensors []Tensor `json:"tensors"` // in the order of their names
	// Histogram counts the tensors by the part of their elements that changed.
	Histogram []Bucket `json:"histogram"`
	// Delta is the size of the delta from one version to the other in bytes; 0
	// where the store has none.
	Delta int64 `json:"delta_bytes,omitempty"`
}

// located is a tensor in a file of a version.
type located struct {
	safetensors.Tensor
	file weights.File
}

// Versions compares two versions of a policy. told is called with the bytes that were compared.
func Versions(ctx context.Context, s storage.Store, from, to *weights.Manifest,
	told func(done, total int64)) (*Report, error) {
	before, _, err := tensors(ctx, s, from)
	if err != nil {
		return nil, err
	}
	after, total, err := tensors(ctx, s, to)
	if err != nil {
		return nil, err
	}
	r := &Report{From: from.Version, To: to.Version}
	done := int64(0)
	for name, new := range after {
		t := Tensor{Name: name, Elements: new.Elements(), Bytes: new.Size}
		old, known := before[name]
		switch {
		case !known:
			t.What = "added"
		case old.Dtype != new.Dtype || !slices.Equal(old.Shape, new.Shape):
			t.What = fmt.Sprintf("%s %v became %s %v", old.Dtype, old.Shape, new.Dtype, new.Shape)
		case old.file.Ref == new.file.Ref && old.Offset == new.Offset: // one object
		default:
			if t.Changed, err = changed(ctx, s, old, new); err != nil {
				return nil, fmt.Errorf("tensor %s: %w", name, err)
			}
		}
		done += new.Size
		told(done, total)
		r.Tensors = append(r.Tensors, t)
	}
	for name, old := range before {
		if _, left := after[name]; !left {
			r.Tensors = append(r.Tensors, Tensor{Name: name, Elements: old.Elements(),
				Bytes: old.Size, What: "removed"})
		}
	}
	r.add()
	r.Histogram = histogram(r.Tensors)
	// a shortcut, and not a part of the version
	if d, err := weights.FetchDelta(ctx, s, to.Policy, to.Version); err == nil && d.Base == from.Version {
		r.Delta = d.Size
	}
	return r, ctx.Err()
}

var layerOf = regexp.MustCompile(`\.(\d{1,6})\.`)

// layerNumber is the number in a tensor's name, "" for none.
func layerNumber(tensor string) string {
	if match := layerOf.FindStringSubmatch(tensor); match != nil {
		return match[1]
	}
	return ""
}

// byNumber orders layers; the rest comes first.
func byNumber(a, b string) int {
	number := func(name string) int {
		n, err := strconv.Atoi(name)
		if err != nil {
			return -1
		}
		return n
	}
	return number(a) - number(b)
}

// add sums the tensors up.
func (r *Report) add() {
	slices.SortFunc(r.Tensors, func(a, b Tensor) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	layers := map[string]*Tensor{}
	for _, t := range r.Tensors {
		if t.What != "" {
			continue
		}
		layer := layerNumber(t.Name)
		if layers[layer] == nil {
			layers[layer] = &Tensor{Name: layer}
		}
		for _, sum := range []*Tensor{layers[layer], &r.Sum} {
			sum.Elements, sum.Changed, sum.Bytes = sum.Elements+t.Elements, sum.Changed+t.Changed, sum.Bytes+t.Bytes
		}
	}
	for _, sum := range layers {
		r.Layers = append(r.Layers, *sum)
	}
	slices.SortFunc(r.Layers, func(a, b Tensor) int { return byNumber(a.Name, b.Name) })
}

// tensors finds the tensors of a version by name.
func tensors(ctx context.Context, s storage.Store, m *weights.Manifest) (found map[string]located,
	total int64, err error) {
	if m.Format != weights.FormatFull {
		return nil, 0, fmt.Errorf("version %d is a %s version: its tensors are not in the store as they are", m.Version,
			m.Format)
	}
	found = map[string]located{}
	for _, file := range m.Files {
		if path.Ext(file.Name) != ".safetensors" {
			continue
		}
		header, err := safetensors.Validate(&ranged{ctx, s, file.Ref}, file.Size, maxHeader)
		if err != nil {
			return nil, 0, fmt.Errorf("version %d, file %s: %w", m.Version, file.Name, err)
		}
		for _, t := range header.Tensors {
			found[t.Name] = located{t, file}
			total += t.Size
		}
	}
	return found, total, nil
}

// ranged reads an object by ranges.
type ranged struct {
	ctx context.Context
	s   storage.Store
	ref storage.Ref
}

func (r *ranged) ReadAt(p []byte, at int64) (int, error) {
	n := min(int64(len(p)), r.ref.Size-at)
	if n <= 0 {
		return 0, io.EOF
	}
	data, err := r.s.GetRange(r.ctx, r.ref.Key, at, n)
	if err == nil && n < int64(len(p)) {
		err = io.EOF
	}
	return copy(p, data), err
}

// changed counts the elements of a tensor that differ.
func changed(ctx context.Context, s storage.Store, old, new located) (count int64, err error) {
	if new.Elements() == 0 {
		return 0, nil
	}
	width := int(new.Size / new.Elements())
	if width == 0 {
		return 0, fmt.Errorf("elements of %s are no whole bytes", new.Dtype)
	}
	for at := int64(0); at < new.Size; at += piece {
		n := min(piece, new.Size-at)
		a, err := s.GetRange(ctx, old.file.Key, old.Offset+at, n)
		if err != nil {
			return 0, err
		}
		b, err := s.GetRange(ctx, new.file.Key, new.Offset+at, n)
		if err != nil {
			return 0, err
		}
		if len(a) != len(b) || len(a)%width != 0 {
			return 0, errors.New("the store gives another number of bytes than was asked for")
		}
		count += differ(a, b, width)
	}
	return count, nil
}

func differ(a, b []byte, width int) (count int64) {
	if bytes.Equal(a, b) {
		return 0
	}
	for i := 0; i < len(a); i += width {
		if !bytes.Equal(a[i:i+width], b[i:i+width]) {
			count++
		}
	}
	return count
}
