// Package update brings the index of a repository up to its tree: it finds what is
// different and takes in only that.
package update

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/rondo-rl/rondo/index"
	"github.com/rondo-rl/rondo/index/chunk"
	"github.com/rondo-rl/rondo/index/embed"
	"github.com/rondo-rl/rondo/index/merkle"
	"github.com/rondo-rl/rondo/index/seal"
	"github.com/rondo-rl/rondo/index/segment"
	"github.com/rondo-rl/rondo/index/words"
	"github.com/rondo-rl/rondo/storage"
)

// batchChunks bounds the chunks that one commit takes in, and with them the memory of an update.
// What was committed is searched at once, and an update that ends early goes on from there.
const batchChunks = 20_000

// conflicts is how often an update begins again because another updater was faster.
const conflicts = 20

// Index is where and how the index of one repository is kept.
type Index struct {
	Store    storage.Store
	Keys     *seal.Keys
	Repo     string
	Embedder embed.Embedder
	Cache    *segment.Cache
}

// Progress is where an update is.
type Progress struct{ Done, Files int }

// Identity names everything that a chunk's vector and words depend on beside its text: indexes of
// different identities have nothing in common.
func Identity(e embed.Embedder) string {
	return fmt.Sprintf("%s-c%d-w%d", e.ID(), chunk.Version, words.Version)
}

// Load reads the index as it is in the store; it is empty where there is none.
func (x *Index) Load(ctx context.Context) (*segment.Base, error) {
	return segment.Load(ctx, x.Store, x.Keys, x.pointer(), x.Cache)
}

// pointer names the index among those of the key: one for each identity, as
// those have nothing in common.
func (x *Index) pointer() string { return x.Repo + "@" + Identity(x.Embedder) }

// State says what an index holds and what its last update did. An empty one has the generation 0.
func State(base *segment.Base) (state index.State, err error) {
	if base.Root() == "" {
		return state, nil
	}
	if err := json.Unmarshal(base.Figures(), &state); err != nil {
		return state, fmt.Errorf("read what the last update of the index did: %w", err)
	}
	return state, nil
}

// opener opens a file of a tree by its path.
type opener func(path string) (io.ReadCloser, error)

// Forget takes the index away from the repository. What it consists of goes
// with garbage collection.
func (x *Index) Forget(ctx context.Context) error {
	return segment.Forget(ctx, x.Store, x.Keys, x.pointer())
}

// fresh begins an empty index in the place of whatever is there: also of one that is damaged.
func (x *Index) fresh(ctx context.Context) (*segment.Base, error) {
	base, err := x.Load(ctx)
	if errors.Is(err, storage.ErrCorrupt) {
		return segment.Replace(ctx, x.Store, x.Keys, x.pointer(), x.Cache)
	}
	if err != nil {
		return nil, err
	}
	return base.Fresh(), nil
}

// beginning says what an update builds upon.
type beginning int

const (
	present beginning = iota // the index as it is, or one that is alike where there is none
	anew                     // nothing: all is read, cut and embedded again
)

// sync brings the index up to a tree.
func (x *Index) sync(ctx context.Context, from beginning, walked *merkle.Result, open opener,
	show func(Progress)) (index.State, error) {
	for try := 1; ; try++ {
		state, err := x.syncOnce(ctx, from, walked, open, show)
		if !errors.Is(err, storage.ErrConflict) || try == conflicts {
			return state, err
		}
	}
}

func (x *Index) syncOnce(ctx context.Context, from beginning, walked *merkle.Result, open opener,
	show func(Progress)) (index.State, error) {
	u, err := x.begin(ctx, from, walked, open)
	if err != nil {
		return index.State{}, err
	}
	if err := u.run(ctx, walked, show); err != nil {
		return index.State{}, err
	}
	if u.state.Generation == 0 { // also a tree without a file has an index, and one that is all another's
		if err := u.commit(ctx, segment.Change{}); err != nil {
			return index.State{}, err
		}
	}
	return State(u.base)
}

func (x *Index) begin(ctx context.Context, from beginning, walked *merkle.Result, open opener) (*updating, error) {
	load := x.Load
	if from == anew {
		load = x.fresh
	}
	base, err := load(ctx)
	if err != nil {
		return nil, err
	}
	before, err := State(base)
	if err != nil {
		return nil, err
	}
	u := x.updating(base, open)
	u.state.Generation = before.Generation
	if from == present && base.Root() == "" {
		u.base, err = x.adopt(ctx, base, walked)
	}
	return u, err
}

// adopt begins an index with the most alike one of the same key: a second clone
// costs its difference only.
func (x *Index) adopt(ctx context.Context, empty *segment.Base, walked *merkle.Result) (*segment.Base, error) {
	return empty.Adopt(ctx, Identity(x.Embedder), func(yield func(path string, content [32]byte) bool) {
		for path, file := range walked.Root.Files() {
			if !yield(path, file.Digest) {
				return
			}
		}
	})
}
