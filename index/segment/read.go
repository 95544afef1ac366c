package segment

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/index/seal"
	"github.com/rondo-rl/rondo/storage"
)

// reader reads pages, wherever they are.
type reader struct {
	store storage.Store
	keys  *seal.Keys
	cache *Cache
}

// want names a page.
type want struct {
	part    *part
	section section
	page    int
}

func (w want) key() pageKey { return pageKey{w.part.digest, w.section, w.page} }

func (w want) start() int64 { return w.part.starts[w.section][w.page] }

func (w want) end() int64 { return w.part.starts[w.section][w.page+1] }

// Reading from the store: pages closer than gap are read together, up to span bytes at once, and in
// so many requests at the same time.
const (
	gap      = 32 << 10
	span     = 4 << 20
	requests = 128
)

// pages are what was read.
type pages struct {
	mu  sync.Mutex
	all map[want]any
}

func (p *pages) put(w want, page any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all[w] = page
}

// page gives a page that was wanted.
func page[T any](p *pages, part *part, s section, n int) *T { return p.all[want{part, s, n}].(*T) }

// fetch reads pages: from memory, from the cache's folder, and what is left from the store, all at
// the same time: one round trip.
func (r *reader) fetch(ctx context.Context, wants []want) (*pages, error) {
	found := &pages{all: make(map[want]any, len(wants))}
	var missing []want
	for _, w := range wants {
		if _, twice := found.all[w]; twice {
			continue
		}
		if page, ok := r.cache.get(w.key()); ok {
			found.all[w] = page
			continue
		}
		found.all[w] = nil
		missing = append(missing, w)
	}
	if len(missing) == 0 {
		return found, nil
	}
	slices.SortFunc(missing, func(a, b want) int {
		return cmp.Or(bytes.Compare(a.part.digest[:], b.part.digest[:]), cmp.Compare(a.start(), b.start()))
	})
	missing, err := r.fetchNear(ctx, missing, found)
	if err != nil || len(missing) == 0 {
		return found, err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(requests)
	for _, run := range runs(missing, gap) {
		g.Go(func() error { return r.fetchRun(ctx, run, found) })
	}
	return found, g.Wait()
}

// runs cuts sorted pages into those that are read together.
func runs(sorted []want, gap int64) (all [][]want) {
	start := 0
	for i := 1; i <= len(sorted); i++ {
		if i < len(sorted) && sorted[i].part == sorted[start].part && sorted[i].start() <= sorted[i-1].end()+gap &&
			sorted[i].end() <= sorted[start].start()+span {
			continue
		}
		all = append(all, sorted[start:i])
		start = i
	}
	return all
}

// fetchNear reads the pages that are in this process or in the cache's
// folder, and gives the others.
func (r *reader) fetchNear(ctx context.Context, missing []want, found *pages) (rest []want, err error) {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	opened := map[*part]*os.File{}
	defer func() {
		for _, f := range opened {
			if f != nil {
				f.Close()
			}
		}
	}()
	for _, run := range runs(missing, 0) {
		p := run[0].part
		f, known := opened[p]
		if !known && p.data == nil {
			f = r.cache.open(p.digest)
			opened[p] = f
		}
		if p.data == nil && f == nil {
			mu.Lock()
			rest = append(rest, run...)
			mu.Unlock()
			continue
		}
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			from, to := run[0].start(), run[len(run)-1].end()
			if p.data != nil {
				return r.open(run, p.data[from:to], found)
			}
			data := readRange(f, from, to-from)
			for _, w := range run {
				if !hole(data[w.start()-from:w.end()-from]) &&
					r.open([]want{w}, data[w.start()-from:w.end()-from], found) == nil {
					continue
				}
				mu.Lock()
				rest = append(rest, w)
				mu.Unlock()
			}
			return nil
		})
	}
	err = g.Wait()
	slices.SortFunc(rest, func(a, b want) int {
		return cmp.Or(bytes.Compare(a.part.digest[:], b.part.digest[:]), cmp.Compare(a.start(), b.start()))
	})
	return rest, err
}

// hole reports whether nothing was ever written there: a nonce of zeros is
// not one that anybody drew.
func hole(sealed []byte) bool {
	for _, b := range sealed[:min(len(sealed), 12)] {
		if b != 0 {
			return false
		}
	}
	return true
}

// fetchRun reads neighbouring pages from the store.
func (r *reader) fetchRun(ctx context.Context, run []want, found *pages) error {
	p, from := run[0].part, run[0].start()
	data, err := r.store.GetRange(ctx, segmentKey(r.keys.Space(), p.digest), from, run[len(run)-1].end()-from)
	switch {
	case isGone(err):
		return fmt.Errorf("segment %x: %w: garbage collection takes what newer indexes do not need; load the index again", p.digest[:8], err)
	case errors.Is(err, storage.ErrRange):
		return fmt.Errorf("segment %x: %w: it is cut off: %w", p.digest[:8], storage.ErrCorrupt, err)
	case err != nil:
		return fmt.Errorf("segment %x: %w", p.digest[:8], err)
	}
	if err := r.open(run, data, found); err != nil {
		return err
	}
	r.cache.keep(p.digest, from, data)
	return nil
}

// open decrypts and decodes pages. The data begin with the first one.
func (r *reader) open(run []want, data []byte, found *pages) error {
	first := run[0].start()
	for _, w := range run {
		packed, err := r.keys.Open(data[w.start()-first:w.end()-first], w.part.place(w.section, w.page))
		if err != nil {
			return w.part.wrong(w.section, w.page, fmt.Errorf("%w: %w", storage.ErrCorrupt, err))
		}
		decoded, err := w.part.decode(w.section, w.page, packed)
		if err != nil {
			return err
		}
		found.put(w, decoded)
		r.cache.put(w.key(), decoded, len(packed)*2)
	}
	return nil
}
