package index

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"

	"github.com/rondo-rl/rondo/bench/index/quality"
	"github.com/rondo-rl/rondo/bench/index/quality/functions"
	"github.com/rondo-rl/rondo/index/embed"
	"github.com/rondo-rl/rondo/storage/dir"
)

// Quality is how well functions are found by what is said of them.
type Quality struct {
	Language  string `json:"language"`
	Functions int    `json:"functions"`
	Questions int    `json:"questions"`
	// Textbook is BM25 over parts of identifiers alone, for comparison with what others publish;
	// BM25 is the index's own, the harder rival.
	Textbook quality.Score `json:"textbook"`
	BM25     quality.Score `json:"bm25"`
	Vectors  quality.Score `json:"vectors"`
	Fusion   quality.Score `json:"fusion"`
}

// quality leaves out a language that the machine does not have, but for Go.
func (r *Result) quality(ctx context.Context, o Options, folder string, show func(string)) error {
	embedder := embed.Static()
	r.Embedder = embedder.ID()
	for _, language := range []struct {
		name string
		read func(context.Context) ([]functions.Function, error)
	}{{"go", quality.Go}, {"python", quality.Python}} {
		list, err := language.read(ctx)
		if missing := errors.Is(err, exec.ErrNotFound) ||
			errors.Is(err, fs.ErrNotExist); missing && language.name != "go" {
			show(fmt.Sprintf("quality: left out %s: %v", language.name, err))
			continue
		}
		if err != nil {
			return err
		}
		set := quality.New(list, o.Questions)
		store, err := dir.Open(filepath.Join(folder, "quality-"+language.name))
		if err != nil {
			return err
		}
		defer store.Close()
		index, err := set.Index(ctx, store, embedder, func(n int) {
			show(fmt.Sprintf("quality: %s: %d of %d functions embedded", language.name, n, len(list)))
		})
		if err != nil {
			return err
		}
		q := Quality{Language: language.name, Functions: len(list), Questions: len(set.Questions)}
		for _, way := range []struct {
			name  string
			rank  quality.Ranking
			score *quality.Score
		}{{"textbook BM25", set.Textbook().Rank, &q.Textbook}, {"BM25", index.ByWords, &q.BM25},
			{"vectors", index.ByVectors, &q.Vectors}, {"fusion", index.ByBoth, &q.Fusion}} {
			*way.score, err = set.Score(ctx, way.rank, func(n int) {
				show(fmt.Sprintf("quality: %s by %s: %d of %d questions", language.name,
					way.name, n, len(set.Questions)))
			})
			if err != nil {
				return err
			}
		}
		r.Quality = append(r.Quality, q)
	}
	return nil
}
