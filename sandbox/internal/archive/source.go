package archive

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Source opens an archive at its beginning. It can be opened as often as it is needed;
// nil is an empty archive.
type Source func() (io.ReadCloser, error)

// ErrSource says that an archive cannot be read from where it is, which
// says nothing of the archive.
var ErrSource = errors.New("its source failed")

// Bytes is an archive in memory.
func Bytes(data []byte) Source {
	if len(data) == 0 {
		return nil
	}
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
}

// Open opens the archive; of one that is empty nothing can be read.
func (s Source) Open() (io.ReadCloser, error) {
	if s == nil {
		return io.NopCloser(bytes.NewReader(nil)), nil
	}
	from, err := s()
	if err != nil {
		return nil, fmt.Errorf("open the archive: %w: %w", ErrSource, err)
	}
	return from, nil
}

// read reads the archive as the function of that name does.
func (s Source) read(visit func(e entry, content io.Reader) error) error {
	if s == nil {
		return nil
	}
	from, err := s.Open()
	if err != nil {
		return err
	}
	return errors.Join(read(from, visit), from.Close())
}
