package update

import (
	"context"
	"io"
	"io/fs"

	"github.com/rondo-rl/rondo/index"
	"github.com/rondo-rl/rondo/index/merkle"
	"github.com/rondo-rl/rondo/index/segment"
)

// Snapshot brings the index up to a tree that does not change, such as a task's.
func (x *Index) Snapshot(ctx context.Context, tree fs.FS) (index.State, error) {
	found, err := merkle.Snapshot(ctx, tree, merkle.DefaultLimits())
	if err != nil {
		return index.State{}, err
	}
	return x.sync(ctx, present, found, func(path string) (io.ReadCloser, error) { return tree.Open(path) }, nil)
}

// Overlay gives the index as it would be for a tree, in memory alone: what is different is searched
// at once, and nobody else sees it.
func (x *Index) Overlay(ctx context.Context, base *segment.Base, tree fs.FS) (*segment.Base, error) {
	found, err := merkle.Snapshot(ctx, tree, merkle.DefaultLimits())
	if err != nil {
		return nil, err
	}
	u := x.updating(base, func(path string) (io.ReadCloser, error) { return tree.Open(path) })
	u.overlay = true
	err = u.run(ctx, found, nil)
	return u.base, err
}
