package delta

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// Reader reads one of the files that the delta leads to from base, from front to end: of any size
// in about 25 MiB of memory and without a disk. Whatever does not fit ends it with an error in
// place of io.EOF. storage.ErrNotFound when the delta has no such file. It is to be closed.
func (d *Delta) Reader(ctx context.Context, base *safetensors.Checkpoint, name string) (io.ReadCloser, error) {
	r := &reader{ctx: ctx, delta: d}
	found := false
	for _, file := range d.files {
		if file.Name == name {
			r.rest, found = file.Header, true
		}
	}
	if !found {
		return nil, fmt.Errorf("delta: file %.140s: %w", name, storage.ErrNotFound)
	}
	for _, t := range d.Tensors {
		if t.File != name {
			continue
		}
		tensor := &applying{Tensor: t, new: make([]Digest, t.chunks())}
		if err := tensor.find(base); err != nil {
			return nil, fmt.Errorf("delta: file %.140s: %w", name, err)
		}
		r.tensors = append(r.tensors, tensor)
	}
	var err error
	r.codec, err = newCodec()
	return r, err
}

type reader struct {
	ctx     context.Context
	delta   *Delta
	codec   *codec
	tensors []*applying // that are left
	chunk   int         // of the first of them
	rest    []byte      // what was decoded and not read
	err     error
}

// Read reads what is decoded, or decodes the next chunk.
func (r *reader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 && r.err == nil {
		if r.rest, r.err = r.next(); r.err != nil && !errors.Is(r.err, io.EOF) {
			r.err = fmt.Errorf("apply delta: %w", r.err)
		}
	}
	n := copy(p, r.rest)
	if r.rest = r.rest[n:]; n == 0 && len(p) > 0 {
		return 0, r.err
	}
	return n, nil
}

// next gives the bytes of the next chunk, and none at the end of a tensor.
func (r *reader) next() ([]byte, error) {
	if err := r.ctx.Err(); err != nil {
		return nil, err
	}
	if len(r.tensors) == 0 {
		return nil, io.EOF
	}
	t := r.tensors[0]
	if r.chunk == t.chunks() {
		r.tensors, r.chunk = r.tensors[1:], 0
		if digestOfAll(t.new) != t.New {
			return nil, fmt.Errorf("tensor %.80q: %w: %w", t.Name, storage.ErrCorrupt, ErrBase)
		}
		return nil, nil
	}
	data, err := r.delta.newChunk(r.codec, t, r.chunk)
	if err != nil {
		return nil, fmt.Errorf("tensor %.80q: %w", t.Name, err)
	}
	r.chunk++
	return data, nil
}

// Close gives the memory back.
func (r *reader) Close() error {
	if r.codec == nil {
		return nil
	}
	err := r.codec.close()
	r.codec, r.err = nil, errors.New("the reader is closed")
	return err
}
