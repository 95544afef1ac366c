package segment

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/storage"
)

// Adoption looks at so many files of the tree, and at so many other repositories,
// those that changed last.
const (
	sampled  = 64
	siblings = 32
)

// Adopt begins an empty index from that of another repository of the space, the one that shares
// most files with a tree, given by path and digest. So a second clone costs its difference only:
// what Files then yields is to be compared with the tree. Without one that has the embedder and
// shares at least half of the files looked at, it is b itself.
func (b *Base) Adopt(ctx context.Context, embedder string, tree iter.Seq2[string, [32]byte]) (*Base, error) {
	if len(b.parts) > 0 || b.overlay {
		return b, nil
	}
	sample := b.sample(tree)
	others, err := b.siblings(ctx)
	if err != nil || len(sample) == 0 {
		return b, err
	}
	shared := make([]int, len(others))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i, other := range others {
		g.Go(func() (err error) {
			shared[i], err = other.shares(ctx, embedder, sample)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("look for a repository with the same files: %w", err)
	}
	best := 0
	for i := range others {
		if shared[i] > shared[best] {
			best = i
		}
	}
	if len(others) == 0 || shared[best]*2 < len(sample) {
		return b, nil
	}
	adopted := others[best]
	adopted.repo, adopted.etag = b.repo, b.etag
	return adopted, nil
}

type sampleFile struct {
	mark    [16]byte // of the path
	path    string
	content [16]byte
}

// sample picks files at random, but the same ones of trees that are alike.
func (b *Base) sample(tree iter.Seq2[string, [32]byte]) (all []sampleFile) {
	byMark := func(x, y sampleFile) int { return bytes.Compare(x.mark[:], y.mark[:]) }
	for path, digest := range tree {
		all = append(all, sampleFile{mark: b.keys.Path(path), path: path, content: b.keys.Content(digest)})
		if len(all) == 64*sampled {
			slices.SortFunc(all, byMark)
			all = all[:sampled]
		}
	}
	slices.SortFunc(all, byMark)
	return all[:min(len(all), sampled)]
}

// siblings are the present indexes of other repositories of the space.
func (b *Base) siblings(ctx context.Context) (all []*Base, err error) {
	prefix := repoKey(b.keys.Space(), "")
	var found []storage.Info
	for info, err := range b.store.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		if strings.TrimPrefix(info.Key, prefix) != b.repo {
			found = append(found, info)
		}
	}
	slices.SortStableFunc(found, func(x, y storage.Info) int { return y.Modified.Compare(x.Modified) })
	for _, info := range found[:min(len(found), siblings)] {
		other := &Base{reader: b.reader, tuning: b.tuning}
		data, _, err := b.store.Load(ctx, info.Key)
		if isGone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if other.read(data) == nil { // one that is damaged is no help, but no hindrance either
			all = append(all, other)
		}
	}
	return all, nil
}

// shares counts the files of a sample that an index has.
func (b *Base) shares(ctx context.Context, embedder string, sample []sampleFile) (n int, err error) {
	if b.Embedder() != embedder {
		return 0, nil
	}
	paths := make([]string, len(sample))
	for i := range sample {
		paths[i] = sample[i].path
	}
	found, err := b.find(ctx, paths)
	for _, s := range sample {
		if f, ok := found[s.path]; ok && f.content == s.content {
			n++
		}
	}
	return n, err
}
