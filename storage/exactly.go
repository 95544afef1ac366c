package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// ErrSource means that what should be written is not of the size that was said.
var ErrSource = errors.New("the source is not what was said of it")

// Exactly gives what r gives, and fails where that is not size bytes, with size -1 where it is more
// than limit, and when the context ends. It is for those who implement PutReader.
func Exactly(ctx context.Context, r io.Reader, size, limit int64) io.Reader {
	return &exactly{ctx: ctx, r: r, size: size, limit: limit}
}

type exactly struct {
	ctx               context.Context
	r                 io.Reader
	size, limit, read int64
}

func (e *exactly) Read(p []byte) (int, error) {
	if err := e.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := e.r.Read(p)
	e.read += int64(n)
	switch {
	case e.size >= 0 && e.read > e.size:
		return 0, fmt.Errorf("%w: it has more than %d bytes", ErrSource, e.size)
	case e.read > e.limit:
		return 0, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, e.limit)
	case err == io.EOF && e.read < e.size:
		return n, fmt.Errorf("%w: it ends after %d of %d bytes", ErrSource, e.read, e.size)
	case err != nil && err != io.EOF:
		return n, &sourceError{err}
	}
	return n, err
}

// sourceError is an error of the reader that Exactly reads.
type sourceError struct{ error }

func (s *sourceError) Unwrap() error { return s.error }
