package parts

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/storage"
)

// uploads is how many parts are on their way to the store at once.
const uploads = 4

// encoder compresses parts. It is safe for concurrent use.
var encoder = sync.OnceValues(func() (*zstd.Encoder, error) { return zstd.NewWriter(nil, zstd.WithWindowSize(1<<20)) })

// Writer stores what is written to it. It holds a few parts of it, whatever the size.
type Writer struct {
	outer   context.Context
	ctx     context.Context // of the uploads
	store   storage.Store
	known   map[string]Part // by Sum: they are in the store, and stay there
	uploads *errgroup.Group
	hash    rolling
	pending []byte // not cut off yet
	scanned int    // bytes of pending without a place to cut
	began   bool   // the stream is too long to be one object
	bytes   int64
	parts   []*Part
}

// NewWriter begins a stream. Of before, the index of a version that the log names, nil for none,
// parts that come again are not stored again.
func NewWriter(ctx context.Context, store storage.Store, before *Index) *Writer {
	w := &Writer{outer: ctx, store: store, known: map[string]Part{}}
	w.uploads, w.ctx = errgroup.WithContext(ctx)
	w.uploads.SetLimit(uploads)
	if before != nil {
		for _, p := range before.Parts {
			w.known[p.Sum] = p
		}
	}
	return w
}

// Write takes more of the stream. It fails when a part could not be stored.
func (w *Writer) Write(data []byte) (int, error) {
	if w.bytes += int64(len(data)); w.bytes > MaxBytes {
		return 0, fmt.Errorf("store in parts: %w: more than %d bytes", storage.ErrTooLarge, int64(MaxBytes))
	}
	w.pending = append(w.pending, data...)
	if w.began = w.began || len(w.pending) > wholeBytes; !w.began {
		return len(data), nil
	}
	for {
		cut := w.hash.cut(w.pending, &w.scanned)
		if cut == 0 {
			return len(data), nil
		}
		if err := w.flush(cut); err != nil {
			return 0, err
		}
	}
}

// flush stores the first bytes of what is pending as a part.
func (w *Writer) flush(n int) error {
	data := slices.Clone(w.pending[:n])
	w.pending = append(w.pending[:0], w.pending[n:]...)
	w.scanned = 0
	sum := sha256.Sum256(data)
	part := &Part{Bytes: n, Sum: hex.EncodeToString(sum[:])}
	w.parts = append(w.parts, part)
	if known, ok := w.known[part.Sum]; ok {
		*part = known
		return context.Cause(w.ctx)
	}
	w.uploads.Go(func() (err error) {
		part.Ref, err = put(w.ctx, w.store, data)
		return err
	})
	return context.Cause(w.ctx)
}

func put(ctx context.Context, store storage.Store, data []byte) (storage.Ref, error) {
	compress, err := encoder()
	if err != nil {
		return storage.Ref{}, err
	}
	return storage.PutBlob(ctx, store, compress.EncodeAll(data, nil))
}

// Close ends the stream and gives its reference, with the index that the next version begins with;
// nil where it is one object. A Writer that is not to be closed is abandoned by Abandon.
func (w *Writer) Close() (storage.Ref, *Index, error) {
	if !w.began {
		ref, err := put(w.ctx, w.store, w.pending)
		w.Abandon()
		return ref, nil, err
	}
	var err error
	if len(w.pending) > 0 {
		err = w.flush(len(w.pending))
	}
	if waited := w.uploads.Wait(); waited != nil {
		err = waited
	}
	if err != nil {
		return storage.Ref{}, nil, err
	}
	index := &Index{Version: version, Bytes: w.bytes, Parts: make([]Part, len(w.parts))}
	for i, p := range w.parts {
		index.Parts[i] = *p
	}
	text, err := json.Marshal(index)
	if err != nil {
		return storage.Ref{}, nil, err
	}
	ref, err := storage.PutKeyedFrom(w.outer, w.store, indexKey, bytes.NewReader(text), int64(len(text)))
	return ref, index, err
}

// Abandon ends a Writer whose stream is not wanted, or failed. What it has stored is garbage.
func (w *Writer) Abandon() { _ = w.uploads.Wait() }
