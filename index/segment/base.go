package segment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-rl/rondo/index/seal"
	"github.com/rondo-rl/rondo/storage"
)

// Base is an index as it was at one moment: it does not change, and is safe for concurrent use.
// Pages are read when they are needed.
type Base struct {
	reader
	repo    string // "" where no pointer is moved
	etag    string // of the pointer; "" where there is none yet
	pointer []byte // the manifest as it lies in the store, nil for none

	root     string
	manifest manifest
	parts    []*part
	overlay  bool

	tuning tuning
}

// New begins an index that no repository points to: it is found by its root alone, and goes with
// garbage collection some time after it was written last.
func New(store storage.Store, keys *seal.Keys, cache *Cache) *Base {
	if cache == nil {
		cache = memoryOnly()
	}
	return &Base{reader: reader{store, keys, cache}, tuning: tuned}
}

// Load gives a repository's present index, an empty one where there is none yet. Without a cache
// each Base keeps its own pages in memory.
func Load(ctx context.Context, store storage.Store, keys *seal.Keys, repo string, cache *Cache) (*Base, error) {
	b := New(store, keys, cache)
	b.repo = keys.Repo(repo)
	key := repoKey(keys.Space(), b.repo)
	data, etag, err := store.Load(ctx, key)
	if isGone(err) {
		return b, nil
	}
	if err == nil {
		err = b.read(data)
	}
	if err != nil {
		return nil, fmt.Errorf("load index %s: %w", key, err)
	}
	b.etag = etag
	return b, nil
}

// LoadRoot gives the index of a tree by seal.Keys.Root: storage.ErrNotFound where there is none.
// What is committed to it moves no repository's pointer.
func LoadRoot(ctx context.Context, store storage.Store, keys *seal.Keys, root string, cache *Cache) (*Base, error) {
	b := New(store, keys, cache)
	key := rootKey(keys.Space(), root)
	data, _, err := store.Load(ctx, key)
	if err == nil {
		err = b.read(data)
	}
	if err == nil && b.root != root {
		err = fmt.Errorf("%w: it is the one of root %s", storage.ErrCorrupt, b.root)
	}
	if err != nil {
		return nil, fmt.Errorf("load index %s: %w", key, err)
	}
	return b, nil
}

// Forget removes a repository's pointer. Its index goes with garbage collection.
func Forget(ctx context.Context, store storage.Store, keys *seal.Keys, repo string) error {
	return store.Delete(ctx, repoKey(keys.Space(), keys.Repo(repo)))
}

func (b *Base) read(data []byte) error {
	r, m, parts, err := decodeManifest(b.keys, data)
	if err != nil {
		return err
	}
	b.pointer, b.root, b.manifest, b.parts = data, r.root, m, parts
	return nil
}

// Fresh is an empty index in the place of this one: what is committed to it replaces all that was.
func (b *Base) Fresh() *Base {
	return &Base{reader: b.reader, repo: b.repo, etag: b.etag, pointer: b.pointer, overlay: b.overlay, tuning: b.tuning,
		manifest: manifest{Written: b.manifest.Written}}
}

// Root is the tree's, "" for an empty index.
func (b *Base) Root() string { return b.root }

// Embedder is whose vectors these are, "" for an empty index.
func (b *Base) Embedder() string { return b.manifest.Embedder }

// Dimensions is how many coordinates a vector has, 0 in an empty index.
func (b *Base) Dimensions() int { return b.manifest.Dimensions }

// Time is when the index was made, as its updater said.
func (b *Base) Time() time.Time { return b.manifest.Time }

// Figures is what the last updater said of its update, or nil.
func (b *Base) Figures() []byte { return b.manifest.Figures }

// Keys are those with which the index was loaded.
func (b *Base) Keys() *seal.Keys { return b.keys }

// Counts are sums over an index. Dead chunks are those of files that are gone or other by now.
type Counts struct {
	Files    int   `json:"files"`
	Chunks   int   `json:"chunks"`
	Words    int64 `json:"words"`
	Segments int   `json:"segments"`
	Dead     int   `json:"dead_chunks"`
	Bytes    int64 `json:"bytes"` // of segments and manifest, the dead included
}

// Counts counts.
func (b *Base) Counts() (c Counts) {
	c.Segments, c.Bytes = len(b.parts), int64(len(b.pointer))
	for _, p := range b.parts {
		c.Files += p.Files - p.DeadFiles
		c.Chunks += p.liveRows()
		c.Words += p.Words - p.DeadWords
		c.Dead += p.DeadRows
		c.Bytes += p.Size
	}
	return c
}

// conflict says what to do about one.
func conflict(key string) error {
	return fmt.Errorf("%s: %w: load the index again and commit what is still to do", key, storage.ErrConflict)
}

// publish moves the repository's pointer to a manifest. It tells apart what a store that failed has
// done: the pointer is read again before anything is concluded.
func (b *Base) publish(ctx context.Context, manifest []byte) (etag string, err error) {
	key := repoKey(b.keys.Space(), b.repo)
	etag, err = b.store.CompareAndSwap(ctx, key, b.etag, manifest)
	if err == nil {
		return etag, nil
	}
	present, etag, lookErr := b.store.Load(ctx, key)
	switch {
	// sealed with a random nonce: nobody else wrote these bytes
	case lookErr == nil && string(present) == string(manifest):
		return etag, nil
	case errors.Is(err, storage.ErrConflict):
		return "", conflict(key)
	default:
		return "", fmt.Errorf("move %s: %w", key, err)
	}
}
