package bench

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/bench/index"
	"github.com/rondo-rl/rondo/cli/app"
)

func newBenchIndex(g *app.Global) *cobra.Command {
	var o index.Options
	cmd := &cobra.Command{
		Use:   "index",
		Short: "How well code is found, what its index costs, and how soon it answers",
		Long: `Quality: the benchmark searches for functions of the standard libraries of Go and Python. A question is the first sentence
of a function's documentation without the function's name; the index holds the code without documentation. It compares
search by words (the index's BM25 and the textbook BM25), by vectors, and by both as rondo index search does. The built-in
embedder was not trained on these libraries.

Cost: the benchmark indexes Go's standard library, and updates the index after 1, 10 and 1000 changed files. It repeats this
for a tree that is --times as large.

Speed: the benchmark searches indexes of generated chunks, with a warm and with an empty cache, and compares the results
with an exact search.

Everything happens in a temporary directory, which needs about 2 GB for a million chunks. No plane is touched.`,
		Example: "  rondo-bench index\n  rondo-bench index --questions 200 --times 1 --chunks 10000 --json",
	}
	measure := func(ctx context.Context, show *app.Progress) (indexSummary, error) {
		r, err := index.Run(ctx, o, func(line string) { show.Show("%s", line) })
		if err != nil {
			return indexSummary{}, err
		}
		return summariseIndex(r), nil
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Questions, "questions", 1000, "questions about each standard library")
	flags.IntVar(&o.Times, "times", 10,
		"how many times as large as Go's standard library the second tree is; 1: no second tree")
	flags.IntSliceVar(&o.Chunks, "chunks", []int{10_000, 100_000, 1_000_000}, "chunks of the indexes that are asked")
	flags.IntVar(&o.Queries, "queries", 50, "queries at each size")
	flags.StringVar(&o.Dir, "dir", "",
		"where trees and stores are made and removed (default: the system's temporary directory)")
	return measuring(g, "the index", cmd, measure)
}

// indexSummary puts the figures that one looks for first in front: quality in Go, the cost of the
// smaller tree, and the speed of the largest index.
type indexSummary struct {
	BM25          float64 `json:"recall10_bm25"`
	Vectors       float64 `json:"recall10_vectors"`
	Fusion        float64 `json:"recall10_fusion"`
	FusionVsBM25  float64 `json:"fusion_vs_bm25"`
	ANN           float64 `json:"ann_recall10,omitempty"`
	Update1       float64 `json:"update_1_ms"`
	Update1000    float64 `json:"update_1000_ms"`
	Full          float64 `json:"full_ms"`
	Warm          float64 `json:"query_warm_p50_ms,omitempty"`
	Cold          float64 `json:"query_cold_p50_ms,omitempty"`
	BytesPerChunk float64 `json:"bytes_per_chunk"`
	index.Result
}

func summariseIndex(r index.Result) indexSummary {
	s := indexSummary{Result: r}
	for _, q := range r.Quality {
		if q.Language == "go" {
			s.BM25, s.Vectors, s.Fusion = q.BM25.Recall10, q.Vectors.Recall10, q.Fusion.Recall10
			s.FusionVsBM25 = s.Fusion / max(s.BM25, 1e-9)
		}
	}
	if len(r.Trees) > 0 {
		t := r.Trees[0]
		s.Full, s.BytesPerChunk = t.FullMS, t.BytesPerChunk
		for _, u := range t.Updates {
			switch u.Files {
			case 1:
				s.Update1 = u.MS
			case 1000:
				s.Update1000 = u.MS
			}
		}
	}
	if n := len(r.Sizes); n > 0 {
		s.ANN, s.Warm, s.Cold = r.Sizes[n-1].Recall10, r.Sizes[n-1].WarmP50, r.Sizes[n-1].ColdP50
	}
	return s
}
