package update

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/rondo-rl/rondo/index/merkle"
	"github.com/rondo-rl/rondo/index/search"
	"github.com/rondo-rl/rondo/index/segment"
	"github.com/rondo-rl/rondo/index/words"
	"github.com/rondo-rl/rondo/storage"
)

// Ask searches an index, or an overlay of one, for a question: in a directory, unless that is "",
// and for a number of hits.
func (x *Index) Ask(ctx context.Context, base *segment.Base, question, directory string,
	limit int) ([]search.Hit, error) {
	vectors, err := x.Embedder.Embed(ctx, []string{question})
	if err == nil && len(vectors) != 1 {
		err = fmt.Errorf("%d vectors for one text", len(vectors))
	}
	if err != nil {
		return nil, fmt.Errorf("embed the question by %s: %w", x.Embedder.ID(), err)
	}
	return search.Run(ctx, base, search.Query{Text: question, Words: words.Of(question), Vector: vectors[0],
		Directory: directory, Limit: limit})
}

// View is an index beside the folder as it is now.
type View struct {
	*segment.Base
	// Stale: the folder is another tree than the indexed one.
	Stale bool
	now   tree
}

// Current loads the index of the folder as it is now, or where there is none, the
// newest one of the repository.
func (f *Folder) Current(ctx context.Context) (*View, error) {
	known, err := f.loadState()
	if err != nil {
		return nil, err
	}
	walked, err := merkle.Walk(ctx, f.Dir, known, merkle.DefaultLimits())
	var partial *merkle.PartialError
	if err != nil && !errors.As(err, &partial) || ctx.Err() != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	keyed := f.keyed(&walked.Root)
	v := &View{now: tree{}}
	for path, n := range keyed.Files() {
		v.now[path] = indexedFile{mark: [16]byte(n.Digest[:])}
	}
	root := f.root(&keyed)
	if v.Base, err = segment.LoadRoot(ctx, f.Store, f.Keys, root, f.Cache); !errors.Is(err, storage.ErrNotFound) {
		return v, err
	}
	v.Stale = true
	v.Base, err = f.Load(ctx)
	return v, err
}

// Changed reports whether a file is another one than the indexed, or gone.
func (v *View) Changed(ctx context.Context, path string) (bool, error) {
	content, ok, err := v.File(ctx, path)
	return !ok || v.now[path].mark != content, err
}

func (f *Folder) loadState() (*merkle.State, error) {
	known, err := merkle.LoadState(f.StateFile, func(data []byte) ([]byte,
		error) {
		return f.Keys.Open(data, statePlace)
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, merkle.ErrDamagedState) {
		return nil, nil
	}
	return known, err
}
