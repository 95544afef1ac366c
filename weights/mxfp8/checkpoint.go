package mxfp8

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/storage/whole"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

const (
	// ScaleSuffix is behind the name of a tensor in that of its scales.
	ScaleSuffix = "_scale_inv"
	// ReportName is the file that says what quantising has done.
	ReportName = "mxfp8.json"

	maxRow = 64 << 20 // bytes
	piece  = 4 << 20  // bytes that are copied at once
)

// keptMatrices are the matrices that engines want as they are: embeddings, the head,
// and what chooses experts.
var keptMatrices = regexp.MustCompile(`(^|\.)(embed[a-z_]*|wte|wpe|lm_head|router|gate)\.weight$`)

// Quantised is what became of a tensor.
type Quantised struct {
	Name string `json:"name"`
	Error
}

// Quantises reports whether a tensor is quantised: a bfloat16 matrix, or a stack of
// them, of a linear layer.
func Quantises(t safetensors.Tensor) bool {
	return t.Dtype == safetensors.BF16 && len(t.Shape) >= 2 && t.Size > 0 && strings.HasSuffix(t.Name, "weight") &&
		!keptMatrices.MatchString(t.Name)
}

// Folder quantises the checkpoint in a folder into another one, file by file, and copies what else
// is there, but for notes of its own. It holds a row and the scales of a tensor in memory. told is
// called with the bytes that were read.
func Folder(ctx context.Context, from, to string, told func(done, total int64)) ([]Quantised, error) {
	if _, err := os.Stat(filepath.Join(to, ReportName)); err == nil {
		return nil, fmt.Errorf("%s holds quantised weights already", to)
	}
	c, err := safetensors.Open(from)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	w := &writer{ctx: ctx, total: c.Bytes(), told: told}
	for _, file := range c.Files {
		if err := whole.File(filepath.Join(to, file.Name),
			func(out io.Writer) error { return w.file(out, c, file) }); err != nil {
			return nil, fmt.Errorf("quantise %s: %w", file.Name, err)
		}
	}
	if err := copyOthers(from, to); err != nil {
		return nil, err
	}
	if err := index(from, to); err != nil {
		return nil, err
	}
	slices.SortFunc(w.done, func(a, b Quantised) int { return strings.Compare(a.Name, b.Name) })
	return w.done, nil
}

type writer struct {
	ctx         context.Context
	done        []Quantised
	read, total int64
	told        func(done, total int64)
}

func (w *writer) add(n int) error {
	w.read += int64(n)
	w.told(w.read, w.total)
	return w.ctx.Err()
}

// file writes one file: a tensor's scales stand behind it, or later, under
// its name with ScaleSuffix.
func (w *writer) file(out io.Writer, c *safetensors.Checkpoint, file *safetensors.File) error {
	scales := map[string][]byte{}
	var tensors []safetensors.Streamed
	for _, t := range file.Tensors {
		if !Quantises(t) {
			tensors = append(tensors, safetensors.Streamed{Name: t.Name, Dtype: t.Dtype, Shape: t.Shape,
				WriteTo: func(out io.Writer) error { return w.copy(out, file, t) }})
			continue
		}
		last := t.Shape[len(t.Shape)-1]
		name := t.Name + ScaleSuffix
		if _, taken := c.Tensor(name); taken || 2*last > maxRow {
			return fmt.Errorf("tensor %.80q: %q is taken, or a row has more than %d bytes", t.Name, name, maxRow)
		}
		shape := slices.Clone(t.Shape)
		shape[len(shape)-1] = Scales(last)
		tensors = append(tensors,
			safetensors.Streamed{Name: t.Name, Dtype: "F8_E4M3", Shape: t.Shape,
				WriteTo: func(out io.Writer) (err error) {
					scales[name], err = w.quantise(out, file, t)
					return err
				}},
			safetensors.Streamed{Name: name, Dtype: "F8_E8M0", Shape: shape, WriteTo: func(out io.Writer) error {
				_, err := out.Write(scales[name])
				delete(scales, name)
				return err
			}})
	}
	return safetensors.WriteStreamed(out, tensors, file.Metadata)
}

func (w *writer) copy(out io.Writer, file *safetensors.File, t safetensors.Tensor) error {
	n, err := io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{io.NewSectionReader(file, t.Offset, t.Size)},
		make([]byte, min(piece, t.Size+1)))
	return errors.Join(err, w.add(int(n)))
}

// quantise writes a tensor's elements and gives its scales.
func (w *writer) quantise(out io.Writer, file *safetensors.File, t safetensors.Tensor) ([]byte, error) {
	last := t.Shape[len(t.Shape)-1]
	row, codes := make([]byte, 2*last), make([]byte, last)
	perRow := Scales(last)
	scales := make([]byte, t.Elements()/last*perRow)
	q := Quantised{Name: t.Name}
	for i := range t.Elements() / last {
		if n, err := file.ReadAt(row, t.Offset+i*2*last); n != len(row) {
			return nil, fmt.Errorf("read tensor %.80q: %w", t.Name, err)
		}
		Row(codes, scales[i*perRow:(i+1)*perRow], row, &q.Error)
		if _, err := out.Write(codes); err != nil {
			return nil, err
		}
		if err := w.add(len(row)); err != nil {
			return nil, err
		}
	}
	w.done = append(w.done, q)
	return scales, nil
}

// copyOthers copies the files that hold no tensors.
func copyOthers(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(from, e.Name()))
		if err != nil || !info.Mode().IsRegular() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		switch {
		case strings.HasSuffix(e.Name(), safetensors.Extension), e.Name() == safetensors.IndexName:
		case e.Name() == "rondo.json", e.Name() == "fingerprint.json": // say what the version's own bytes are, and give
		default:
			if err := whole.Copy(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// index writes which file holds which tensor, where the checkpoint says so.
func index(from, to string) error {
	if _, err := os.Stat(filepath.Join(from, safetensors.IndexName)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	c, err := safetensors.Open(to)
	if err != nil {
		return err
	}
	defer c.Close()
	text, err := c.Index()
	if err != nil {
		return err
	}
	return whole.File(filepath.Join(to, safetensors.IndexName),
		func(out io.Writer) error { _, err := out.Write(text); return err })
}
