package parts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/rondo-rl/rondo/storage"
)

// decoder reads parts. It is safe for concurrent use, and makes no more than a
// part's bytes of anything.
var decoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxPart),
		zstd.WithDecoderMaxWindow(8<<20))
})

// Open opens what a Writer, or PutBlob, has stored under a reference, at its beginning: a stream in
// parts as it was written, one that is a single object as it is stored, which is compressed. Bytes
// that are not what they were are storage.ErrCorrupt, at the end of a part or of the object. The
// index is nil for a single object. The cache is where parts are looked for first; nil is none.
func Open(ctx context.Context, store storage.Store, ref storage.Ref, cache *Cache) (io.ReadCloser, *Index, error) {
	if !IsIndex(ref.Key) {
		from, err := storage.ReadBlob(ctx, store, ref)
		return from, nil, err
	}
	index, err := load(ctx, store, ref)
	if err != nil {
		return nil, nil, err
	}
	return &reader{ctx: ctx, store: store, cache: cache, left: index.Parts}, index, nil
}

// reader reads one part after the other, and holds one.
type reader struct {
	ctx   context.Context
	store storage.Store
	cache *Cache
	left  []Part
	part  []byte // what of it was not read yet
	space []byte
}

func (r *reader) Read(p []byte) (int, error) {
	for len(r.part) == 0 {
		if len(r.left) == 0 {
			return 0, io.EOF
		}
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.part)
	r.part = r.part[n:]
	return n, nil
}

func (r *reader) next() error {
	part := r.left[0]
	stored, err := r.cache.get(r.ctx, r.store, part.Ref)
	if err != nil {
		return err
	}
	decompress, err := decoder()
	if err != nil {
		return err
	}
	r.space, err = decompress.DecodeAll(stored, r.space[:0])
	if err != nil {
		return fmt.Errorf("%s: %w: %w", part.Key, storage.ErrCorrupt, err)
	}
	if sum := sha256.Sum256(r.space); len(r.space) != part.Bytes || hex.EncodeToString(sum[:]) != part.Sum {
		return fmt.Errorf("%s: %w: it is not the part that the index describes", part.Key, storage.ErrCorrupt)
	}
	r.part, r.left = r.space, r.left[1:]
	return nil
}

func (r *reader) Close() error { return nil }
