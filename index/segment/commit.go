package segment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/storage"
)

// Writer collects a change that may be larger than memory: full segments are stored on the way,
// where nobody sees them until Commit. It is not safe for concurrent use.
type Writer struct {
	base       *Base
	embedder   string
	dimensions int
	full       int // rows of a segment that is stored on the way
	overlay    bool

	pending  *builder
	awaiting []await // chunks whose vectors are still to be found
	own      map[[16]byte]quantised
	written  []*part
	removed  map[string]bool
	put      map[string]bool
	err      error // of an earlier call: the change is not whole
}

// await is a chunk without a vector: chunk row of file.
type await struct {
	file, row int
}

// fullSegment is how many rows a segment has at most, and fullVectors how many bytes of vectors:
// what is in memory at once, and what a merge writes again.
const (
	fullSegment = 128 << 10
	fullVectors = 128 << 20
)

func full(dimensions int) int { return min(fullSegment, fullVectors/(dimensions+8)) }

// Begin begins a change.
func (b *Base) Begin(embedder string, dimensions int) (*Writer, error) {
	switch {
	case b.overlay:
		return nil, ErrOverlay
	case embedder == "" || len(embedder) > MaxEmbedder || dimensions < 1 || dimensions > MaxDimensions:
		return nil, fmt.Errorf("%w: embedder %.100q with %d dimensions (limits: %d bytes, %d)", ErrChange, embedder,
			dimensions, MaxEmbedder, MaxDimensions)
	case len(b.parts) > 0 && (b.Embedder() != embedder || b.Dimensions() != dimensions):
		return nil, fmt.Errorf("%w: %s with %d dimensions, and the change is of %s with %d", ErrEmbedder, b.Embedder(),
			b.Dimensions(), embedder, dimensions)
	}
	return &Writer{base: b, embedder: embedder, dimensions: dimensions, full: full(dimensions),
		removed: map[string]bool{}, put: map[string]bool{}}, nil
}

// Remove takes a file out of the index.
func (w *Writer) Remove(path string) { w.removed[path] = true }

// Put adds a file, or replaces the one that has its path.
func (w *Writer) Put(ctx context.Context, f File) error {
	if w.err != nil {
		return w.err
	}
	if err := w.add(f); err != nil {
		w.err = fmt.Errorf("put %.200q: %w", f.Path, err)
	} else if w.pending.rows >= w.full || len(w.pending.marks) > maxMarks/2 || len(w.pending.files) >= maxRows/2 {
		w.err = w.flush(ctx)
		if w.err == nil {
			w.err = w.upload(ctx, w.written)
		}
	}
	return w.err
}

func (w *Writer) add(f File) error {
	switch {
	case f.Path == "" || len(f.Path) > MaxPath:
		return fmt.Errorf("%w: a path of %d bytes (limit %d)", ErrChange, len(f.Path), MaxPath)
	case w.put[f.Path]:
		return fmt.Errorf("%w: the file is put twice", ErrChange)
	case len(f.Chunks) > MaxFileChunks:
		return fmt.Errorf("%w: %d chunks (limit %d)", ErrChange, len(f.Chunks), MaxFileChunks)
	}
	if w.pending == nil {
		w.pending, w.own = newBuilder(w.base.keys, w.dimensions), map[[16]byte]quantised{}
		w.pending.clusters = w.base.tuning.clusters(slices.Concat(w.base.parts, w.written))
	}
	rotation := w.base.keys.Rotation(w.dimensions)
	all := make([]chunkRow, len(f.Chunks))
	for i := range f.Chunks {
		c := &f.Chunks[i]
		if err := c.validate(w.dimensions); err != nil {
			return fmt.Errorf("chunk %d: %w", i, err)
		}
		all[i] = chunkRow{id: c.ID, start: uint32(c.Start), end: uint32(c.End), first: uint32(c.FirstLine),
			last:   uint32(c.LastLine),
			symbol: c.Symbol[:min(len(c.Symbol), MaxSymbol)], length: uint32(len(c.Words)), words: w.pending.counted(c)}
		switch known, ok := w.own[c.ID]; {
		case ok:
			all[i].vector = known
		case c.Vector == nil:
			w.awaiting = append(w.awaiting, await{len(w.pending.files), i})
		default:
			all[i].vector = quantise(rotation.Apply(c.Vector))
			w.own[c.ID] = all[i].vector
		}
	}
	if n := len(w.pending.marks); n > maxMarks {
		return fmt.Errorf("%w: %d different words in a segment (limit %d)", storage.ErrTooLarge, n, maxMarks)
	}
	w.put[f.Path] = true
	w.pending.add(fileRows{strings.Clone(f.Path), w.base.keys.Content(f.Content), all})
	return nil
}

func (c *Chunk) validate(dimensions int) error {
	switch {
	case c.Start < 0 || c.End < c.Start || c.End >= maxOffset || c.FirstLine < 0 || c.LastLine < c.FirstLine ||
		c.LastLine >= maxOffset:
		return fmt.Errorf("%w: bytes %d to %d, lines %d to %d", ErrChange, c.Start, c.End, c.FirstLine, c.LastLine)
	case len(c.Words) > MaxWords:
		return fmt.Errorf("%w: %d words (limit %d)", ErrChange, len(c.Words), MaxWords)
	case c.Vector != nil && (len(c.Vector) != dimensions || !finite(c.Vector)):
		return fmt.Errorf("%w: a vector of %d coordinates, want %d finite ones", ErrChange, len(c.Vector), dimensions)
	}
	return nil
}

// flush makes a segment of what was collected. It stays in memory.
func (w *Writer) flush(ctx context.Context) error {
	if w.pending == nil {
		return nil
	}
	if err := w.fill(ctx); err != nil {
		return err
	}
	p, err := w.pending.build()
	if err != nil {
		return err
	}
	w.written = append(w.written, p)
	w.pending, w.own = nil, nil
	return nil
}

// fill finds the vectors that are to be used again.
func (w *Writer) fill(ctx context.Context) error {
	var marks [][16]byte
	for _, a := range w.awaiting {
		if id := w.pending.files[a.file].rows[a.row].id; w.own[id].bytes == nil {
			marks = append(marks, id)
		}
	}
	slices.SortFunc(marks, func(a, b [16]byte) int { return strings.Compare(string(a[:]), string(b[:])) })
	marks = slices.Compact(marks)
	slots, err := w.base.vectorsOf(ctx, append(slices.Clip(w.base.parts), w.written...), marks)
	if err != nil {
		return err
	}
	loaded, err := w.base.load(ctx, slots)
	if err != nil {
		return err
	}
	for _, a := range w.awaiting {
		f := &w.pending.files[a.file]
		r := &f.rows[a.row]
		if r.vector = w.own[r.id]; r.vector.bytes != nil {
			continue
		}
		if r.vector = loaded[r.id]; r.vector.bytes == nil {
			return fmt.Errorf("chunk %d of %.200q: %w", a.row, f.path, ErrNoVector)
		}
	}
	w.awaiting = nil
	return nil
}

// upload stores the segments that are in memory alone.
func (w *Writer) upload(ctx context.Context, parts []*part) error {
	if w.overlay {
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for _, p := range parts {
		if p.data == nil {
			continue
		}
		g.Go(func() error {
			if err := w.base.store.Put(ctx, segmentKey(w.base.keys.Space(), p.digest), p.data); err != nil {
				return fmt.Errorf("store segment %x: %w", p.digest[:8], err)
			}
			w.base.cache.keep(p.digest, 0, p.data)
			p.data = nil
			return nil
		})
	}
	return g.Wait()
}

// Commit makes the change what the repository's index is. Where another updater was faster,
// the error is a storage.ErrConflict, and nothing has changed: load again, and commit what is
// still to do. After another error the change may or may not have happened: load again to
// see. A Writer commits once.
func (w *Writer) Commit(ctx context.Context, u Update) (*Base, error) {
	if w.err != nil {
		return nil, w.err
	}
	w.err = errors.New("the change was committed already")
	if w.overlay && u.Root == "" {
		u.Root = w.base.root
	} else if err := u.validate(); err != nil {
		return nil, err
	}
	next, err := w.apply(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("commit index of root %s: %w", u.Root, err)
	}
	if w.overlay {
		return next, nil
	}
	if err := next.merge(ctx); err != nil {
		return nil, fmt.Errorf("merge segments: %w", err)
	}
	if err := w.upload(ctx, next.parts); err != nil {
		return nil, err
	}
	if err := next.write(ctx, w.base); err != nil {
		return nil, err
	}
	return next, nil
}

// apply gives the index as it is after the change, with what is new in memory.
func (w *Writer) apply(ctx context.Context, u Update) (*Base, error) {
	if err := w.flush(ctx); err != nil {
		return nil, err
	}
	gone := make([]string, 0, len(w.removed)+len(w.put))
	for path := range w.removed {
		gone = append(gone, path)
	}
	for path := range w.put {
		gone = append(gone, path)
	}
	old, err := w.base.find(ctx, gone)
	if err != nil {
		return nil, err
	}
	b := w.base
	next := &Base{reader: b.reader, repo: b.repo, root: u.Root, overlay: w.overlay, tuning: b.tuning,
		manifest: manifest{Embedder: w.embedder, Dimensions: w.dimensions, Time: u.Time, Figures: u.Figures}}
	changed := map[*part]*part{}
	for _, f := range old {
		p := changed[f.part]
		if p == nil {
			c := *f.part
			if c.Dead = slices.Clone(c.Dead); c.Dead == nil {
				c.Dead = make([]byte, (c.Files+7)/8)
			}
			c.table = &table{}
			p = &c
			changed[f.part] = p
		}
		p.Dead[f.file/8] |= 1 << (f.file % 8)
		p.DeadFiles++
		p.DeadRows += f.rows
		p.DeadWords += f.words
	}
	for _, p := range b.parts {
		if c := changed[p]; c != nil {
			p = c
		}
		if p.DeadFiles < p.Files {
			next.parts = append(next.parts, p)
		}
	}
	next.parts = append(next.parts, w.written...)
	return next, nil
}

// write stores the manifest, by root and then as the repository's.
func (b *Base) write(ctx context.Context, old *Base) error {
	b.manifest.Written = time.Now().UTC()
	data, err := encodeManifest(b.keys, b.root, b.manifest, b.parts)
	if err != nil {
		return err
	}
	space := b.keys.Space()
	if err := old.refresh(ctx, b.root); err != nil {
		return err
	}
	if err := b.store.Put(ctx, rootKey(space, b.root), data); err != nil {
		return fmt.Errorf("store the index of root %s: %w", b.root, err)
	}
	b.pointer = data
	if b.repo == "" {
		return nil
	}
	b.etag = old.etag
	b.etag, err = b.publish(ctx, data)
	return err
}

// refresh writes the manifest again that is about to be replaced, if it is old: what it needs stays
// for a while, as others may use it or build upon it.
func (b *Base) refresh(ctx context.Context, next string) error {
	if b.pointer == nil || time.Since(b.manifest.Written) <= storage.RefreshAfter {
		return nil
	}
	r, _, err := decodeClear(b.pointer)
	if err == nil && r.root != next {
		err = b.store.Put(ctx, rootKey(b.keys.Space(), r.root), b.pointer)
	}
	if err != nil {
		return fmt.Errorf("refresh the index of root %s: %w", r.root, err)
	}
	return nil
}

// Commit makes a change what the repository's index is, as Writer.Commit does.
func (b *Base) Commit(ctx context.Context, c Change) (*Base, error) { return b.change(ctx, c, false) }

// Overlay gives the index as it would be after a change, in memory alone: nothing is stored, and
// nobody else sees it. It is searched as any other, and answers as if the change had been
// committed. Its root is the base's, unless the change has one.
func (b *Base) Overlay(ctx context.Context, c Change) (*Base, error) { return b.change(ctx, c, true) }

func (b *Base) change(ctx context.Context, c Change, overlay bool) (*Base, error) {
	w, err := b.Begin(c.Embedder, c.Dimensions)
	if err != nil {
		return nil, err
	}
	w.overlay = overlay
	for _, path := range c.Removed {
		w.Remove(path)
	}
	for _, f := range c.Put {
		if err := w.Put(ctx, f); err != nil {
			return nil, err
		}
	}
	return w.Commit(ctx, c.Update)
}
