package memory

import (
	"bytes"
	"context"
	"errors"
	"io"
)

// first is the size of the buffer that a text of unknown length is read into at first, in bytes. It doubles when it is full.
const first = 16 << 10

// declared bounds the buffer that is made for a length which a sender has stated and not sent yet, in bytes: who sends slowly holds about what he has sent.
const declared = 4 << 20

// ErrLong says that a text is longer than it may be.
var ErrLong = errors.New("too long")

// Read reads a text of at most most bytes, and takes its buffer of the share before it makes it. length is how long the sender says that it is, 0 or less where it does not say: one buffer
// of that size is made, if it is not larger than declared, and none is thrown away. Its error is ErrLong, that of Grow, or the reader's.
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

// Values is an upper bound of how many values a JSON text has within others, without reading it: they cost memory however short they are.
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
