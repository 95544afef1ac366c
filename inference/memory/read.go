package memory

import (
	"bytes"
	"context"
	"errors"
	"io"
)

// first is the size of the buffer that a text of unknown length is read into at first, in bytes. It
// doubles when it is full.
const first = 16 << 10

// declared bounds the buffer that is made for a length which a sender has stated and not sent yet,
// in bytes: who sends slowly holds about what he has sent.
const declared = 4 << 20

// ErrLong says that a text is longer than it may be.
var ErrLong = errors.New("too long")

// Read reads a text of at most most bytes, and takes its buffer of the share before it makes it.
// length is how long the sender says that it is, 0 or less where it does not say: one buffer of
// that size is made, if it is not larger than declared, and none is thrown away. Its error is
// ErrLong, that of Grow, or the reader's.
func (s *Share) Read(ctx context.Context, r io.Reader, length, most int64) ([]byte, error) {
	if length > most {
		return nil, ErrLong
	}
	size := min(first, most+1)
	if length > 0 {
		size = min(length, declared) + 1 // so that the end is found without another buffer
	}
	if err := s.Grow(ctx, size); err != nil {
		return nil, err
	}
	text := make([]byte, 0, size)
	for {
		n, err := r.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		switch {
		case int64(len(text)) > most:
			return nil, ErrLong
		case err == io.EOF:
			return text, nil
		case err != nil:
			return nil, err
		case len(text) < cap(text):
			continue
		}
		larger := min(2*size, most+1)
		if err := s.Grow(ctx, larger); err != nil { // both exist while one is copied
			return nil, err
		}
		text = append(make([]byte, 0, larger), text...)
		s.Shrink(size)
		size = larger
	}
}

// Lines reads a text line by line.
type Lines struct {
	share *Share
	r     io.Reader
	most  int64
	buf   []byte
	// from and to are where what was read and not given begins and ends, and seen up to where
	// it has no end of a line.
	from, seen, to int
	err            error // the reader's
}

// Lines reads a text by lines of at most most bytes. It takes its buffer of the
// share before it makes it.
func (s *Share) Lines(r io.Reader, most int64) *Lines { return &Lines{share: s, r: r, most: most} }

// Next is the next line without its end, until the call after it. Its error is io.EOF behind the
// last one, ErrLong, that of Grow, or the reader's.
func (l *Lines) Next(ctx context.Context) ([]byte, error) {
	if l.from == l.to && len(l.buf) > first {
		l.End() // for one long line
	}
	for {
		if at := bytes.IndexByte(l.buf[l.seen:l.to], '\n'); at >= 0 {
			line := l.buf[l.from : l.seen+at]
			l.from, l.seen = l.seen+at+1, l.seen+at+1
			return bytes.TrimSuffix(line, []byte("\r")), nil
		}
		l.seen = l.to
		if l.err != nil {
			line := l.buf[l.from:l.to]
			if l.from = l.to; errors.Is(l.err, io.EOF) && len(line) > 0 {
				return line, nil
			}
			return nil, l.err
		}
		if err := l.room(ctx); err != nil {
			return nil, err
		}
		var n int
		n, l.err = l.r.Read(l.buf[l.to:])
		l.to += n
	}
}

// room makes room in the buffer.
func (l *Lines) room(ctx context.Context) error {
	size := int64(len(l.buf))
	switch {
	case l.from > 0:
		copy(l.buf, l.buf[l.from:l.to])
		l.from, l.seen, l.to = 0, l.seen-l.from, l.to-l.from
		return nil
	case l.to < len(l.buf):
		return nil
	case size > l.most:
		return ErrLong
	}
	larger := min(max(2*size, first), l.most+1)
	if err := l.share.Grow(ctx, larger); err != nil { // both exist while one is copied
		return err
	}
	l.buf = append(make([]byte, 0, larger), l.buf...)[:larger]
	l.share.Shrink(size)
	return nil
}

// End gives the buffer back. What was read and not given is lost.
func (l *Lines) End() {
	l.share.Shrink(int64(len(l.buf)))
	l.buf, l.from, l.seen, l.to = nil, 0, 0, 0
}

// Values is an upper bound of how many values a JSON text has within others, without reading it:
// they cost memory however short they are.
func Values(text []byte) (n int64) {
	for {
		open := bytes.IndexByte(text, '"')
		if open < 0 {
			return n + separators(text)
		}
		n += separators(text[:open])
		text = text[open+1:]
		for escaped := true; escaped; {
			end := bytes.IndexByte(text, '"')
			if end < 0 {
				return n
			}
			before := text[:end]
			escaped = (len(before)-len(bytes.TrimRight(before, `\`)))%2 == 1
			text = text[end+1:]
		}
	}
}

func separators(text []byte) int64 {
	return int64(bytes.Count(text, comma) + bytes.Count(text, brace) + bytes.Count(text, bracket))
}

var comma, brace, bracket = []byte{','}, []byte{'{'}, []byte{'['}
