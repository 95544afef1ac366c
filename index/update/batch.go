package update

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/index"
	"github.com/rondo-rl/rondo/index/merkle"
	"github.com/rondo-rl/rondo/index/segment"
)

// updating is one update under way.
type updating struct {
	*Index
	base  *segment.Base
	marks tree
	open  opener
	state index.State
	// overlay: what is committed stays in memory.
	overlay bool
}

func (x *Index) updating(base *segment.Base, open opener) *updating {
	return &updating{Index: x, open: open, base: base, marks: tree{}, state: index.State{
		Space: x.Keys.Space(), Base: base.Root(), Embedder: Identity(x.Embedder), Skipped: map[string]int{},
		Secrets: map[string]int{},
	}}
}

// run brings the index up to a tree.
func (u *updating) run(ctx context.Context, walked *merkle.Result, show func(Progress)) error {
	for reason, n := range walked.Skipped {
		u.state.Skipped[reason.String()] = n
	}
	keyed := u.keyed(&walked.Root)
	if u.state.Generation > 0 && u.base.Root() == u.root(&keyed) {
		return nil // the very tree that is indexed: nothing of the index need be read
	}
	for file, err := range u.base.Files(ctx) {
		if err != nil {
			return err
		}
		u.marks[file.Path] = indexedFile{file.Content, file.Chunks}
	}
	steps, err := u.marks.stepsTo(&keyed)
	if err != nil {
		return err
	}
	progress := Progress{Files: len(steps)}
	for len(steps) > 0 {
		n, err := u.batch(ctx, steps, func(files int) {
			if show != nil {
				show(Progress{Done: progress.Done + files, Files: progress.Files})
			}
		})
		if err != nil {
			return err
		}
		progress.Done += n
		steps = steps[n:]
	}
	return nil
}

// window is how many files are cut at once, for each core.
const window = 32

// embedBatch is how many chunks an embedder is given at once.
const embedBatch = 256

// prepared is a step with its file cut, or nothing where the file is not any more what the walk
// saw: the next update finds what it is then.
type prepared struct {
	step
	moved   bool
	content [sha256.Size]byte
	pieces  []piece
	secrets map[string]int
}

// batch takes the first steps, as many as one commit may hold, and says how many these were.
func (u *updating) batch(ctx context.Context, steps []step, show func(files int)) (int, error) {
	var list []prepared
	chunks := 0
	// there is one overlay of an index, not one over another
	for len(list) < len(steps) && (chunks < batchChunks || u.overlay) {
		more, err := u.prepare(ctx, steps[len(list):min(len(list)+window*runtime.GOMAXPROCS(0), len(steps))])
		if err != nil {
			return 0, err
		}
		for _, p := range more {
			chunks += len(p.pieces)
		}
		list = append(list, more...)
		show(len(list))
	}
	change, err := u.change(ctx, list)
	if err != nil {
		return 0, err
	}
	if len(change.Put)+len(change.Removed) == 0 {
		return len(list), nil
	}
	return len(list), u.commit(ctx, change)
}

// prepare reads and cuts files, those of a window at the same time.
func (u *updating) prepare(ctx context.Context, steps []step) ([]prepared, error) {
	list := make([]prepared, len(steps))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, s := range steps {
		list[i].step = s
		if s.removed {
			continue
		}
		group.Go(func() error {
			content, err := u.read(s.File)
			if errors.Is(err, errChanged) {
				list[i].moved = true
				return nil
			}
			if err == nil {
				list[i].content = sha256.Sum256(content)
				list[i].pieces, list[i].secrets, err = cut(ctx, s.Path, content)
			}
			return err
		})
	}
	return list, group.Wait()
}

// change is what a batch does to the index, with a vector for every chunk that has none there.
func (u *updating) change(ctx context.Context, list []prepared) (change segment.Change, err error) {
	identity := Identity(u.Embedder)
	var all [][16]byte
	var texts []string // of the chunks in all
	for _, p := range list {
		switch {
		case p.moved:
			continue
		case p.removed:
			change.Removed = append(change.Removed, p.Path)
			continue
		}
		f := segment.File{Path: p.Path, Content: p.content}
		for _, c := range p.pieces {
			text := c.Embedded()
			id := u.Keys.Chunk([]byte(text), identity)
			f.Chunks = append(f.Chunks, segment.Chunk{ID: id, Start: c.Start, End: c.End, FirstLine: c.FirstLine,
				LastLine: c.LastLine, Symbol: c.Symbols, Words: c.words})
			all, texts = append(all, id), append(texts, text)
		}
		change.Put = append(change.Put, f)
	}
	for _, p := range list {
		if p.moved {
			continue
		}
		u.state.Removed += u.marks[p.Path].chunks
		delete(u.marks, p.Path)
		if !p.removed {
			u.marks[p.Path] = indexedFile{p.mark(), len(p.pieces)}
		}
		for rule, n := range p.secrets {
			u.state.Secrets[rule] += n
		}
	}
	return change, u.embed(ctx, change.Put, all, texts)
}

// embed gives the chunks vectors, each text once, and none to those whose vector the index has.
func (u *updating) embed(ctx context.Context, files []segment.File, ids [][16]byte, texts []string) error {
	known, err := u.base.Has(ctx, ids)
	if err != nil {
		return err
	}
	var missing []string
	at := map[[16]byte]int{}
	for i, id := range ids {
		if _, twice := at[id]; twice || known[i] {
			u.state.Reused++
			continue
		}
		at[id] = len(missing)
		missing = append(missing, texts[i])
		u.state.Added++
	}
	vectors := make([][]float32, len(missing))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for from := 0; from < len(missing); from += embedBatch {
		part := missing[from:min(from+embedBatch, len(missing))]
		group.Go(func() error {
			made, err := u.Embedder.Embed(ctx, part)
			if err == nil && len(made) != len(part) {
				err = fmt.Errorf("%d vectors for %d texts", len(made), len(part))
			}
			if err != nil {
				return fmt.Errorf("embed by %s: %w", u.Embedder.ID(), err)
			}
			copy(vectors[from:], made)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	given := map[[16]byte]bool{}
	for i := range files {
		for j := range files[i].Chunks {
			c := &files[i].Chunks[j]
			if k, ours := at[c.ID]; ours && !given[c.ID] {
				c.Vector, given[c.ID] = vectors[k], true
			}
		}
	}
	return nil
}

// commit makes what was prepared the repository's index.
func (u *updating) commit(ctx context.Context, change segment.Change) (err error) {
	node, err := u.marks.node()
	if err != nil {
		return err
	}
	u.state.Root = u.root(&node)
	if u.state.Generation++; u.state.Generation == 1 {
		// after any generation of an index that was here and is forgotten or replaced
		u.state.Generation = time.Now().UnixMilli()
	}
	u.state.Files, u.state.Chunks = len(u.marks), u.marks.chunks()
	change.Embedder, change.Dimensions = u.state.Embedder, u.Embedder.Dimensions()
	change.Update = segment.Update{Root: u.state.Root, Time: time.Now()}
	if change.Figures, err = json.Marshal(u.state); err != nil {
		return err
	}
	if u.overlay {
		u.base, err = u.base.Overlay(ctx, change)
	} else {
		u.base, err = u.base.Commit(ctx, change)
	}
	return err
}
