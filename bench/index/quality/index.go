package quality

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/rondo-rl/rondo/index/embed"
	"github.com/rondo-rl/rondo/index/seal"
	"github.com/rondo-rl/rondo/index/search"
	"github.com/rondo-rl/rondo/index/segment"
	"github.com/rondo-rl/rondo/index/words"
	"github.com/rondo-rl/rondo/storage"
)

// Index is the functions of a set in an index as users have it, each one a chunk.
type Index struct {
	base     *segment.Base
	embedder embed.Embedder
}

const (
	perCall    = 256 // texts embedded at once
	repository = "quality"
)

// Index puts the functions into an index in a store. Done receives how many are embedded.
func (s *Set) Index(ctx context.Context, store storage.Store, embedder embed.Embedder, done func(int)) (*Index, error) {
	keys := seal.New(seal.Key(sha256.Sum256([]byte(repository))))
	base, err := segment.Load(ctx, store, keys, repository, nil)
	if err != nil {
		return nil, err
	}
	change := segment.Change{Embedder: embedder.ID(), Dimensions: embedder.Dimensions(), Update: segment.Update{
		Root: keys.Root(sha256.Sum256([]byte(repository))), Time: time.Now(),
	}}
	for from := 0; from < len(s.Functions); from += perCall {
		list := s.Functions[from:min(from+perCall, len(s.Functions))]
		texts := make([]string, len(list))
		for i := range list {
			texts[i] = list[i].Embedded()
		}
		vectors, err := embedder.Embed(ctx, texts)
		if err != nil {
			return nil, err
		}
		for i := range list {
			f, number := &list[i], from+i
			if n := len(change.Put); n == 0 || change.Put[n-1].Path != f.Path {
				change.Put = append(change.Put, segment.File{Path: f.Path, Content: sha256.Sum256([]byte(f.Path))})
			}
			file := &change.Put[len(change.Put)-1]
			file.Chunks = append(file.Chunks, segment.Chunk{
				ID:    keys.Chunk([]byte(texts[i]), embedder.ID()),
				Start: number, End: number + 1, FirstLine: 1, LastLine: 1, // by its number a function is known again
				Symbol: f.Symbol, Words: append(words.Of(texts[i]), words.Of(f.Path)...), Vector: vectors[i],
			})
		}
		if done != nil {
			done(from + len(list))
		}
	}
	base, err = base.Commit(ctx, change)
	return &Index{base, embedder}, err
}

// ByWords ranks by words alone: BM25.
func (x *Index) ByWords(ctx context.Context, question string) ([]int, error) {
	return x.run(ctx, search.Query{Text: question, Words: words.Of(question)})
}

// ByVectors ranks by the vectors alone.
func (x *Index) ByVectors(ctx context.Context, question string) ([]int, error) {
	vectors, err := x.embedder.Embed(ctx, []string{question})
	if err != nil {
		return nil, err
	}
	return x.run(ctx, search.Query{Vector: vectors[0]})
}

// ByBoth ranks as users' questions are answered.
func (x *Index) ByBoth(ctx context.Context, question string) ([]int, error) {
	vectors, err := x.embedder.Embed(ctx, []string{question})
	if err != nil {
		return nil, err
	}
	return x.run(ctx, search.Query{Text: question, Words: words.Of(question), Vector: vectors[0]})
}

func (x *Index) run(ctx context.Context, q search.Query) ([]int, error) {
	q.Limit = Depth
	hits, err := search.Run(ctx, x.base, q)
	list := make([]int, len(hits))
	for i, h := range hits {
		list[i] = h.Start
	}
	return list, err
}
