package bench

import (
	"errors"
	"fmt"
	"io"

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
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show := app.NewProgress(g)
			r, err := index.Run(cmd.Context(), o, func(line string) { show.Show("%s", line) })
			show.Clear()
			if err != nil {
				return fmt.Errorf("measure the index: %w", err)
			}
			return app.Show(cmd, g, summariseIndex(r), func(w io.Writer) error { return printIndex(w, r) })
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Questions, "questions", 1000, "questions about each standard library")
	flags.IntVar(&o.Times, "times", 10, "how many times as large as Go's standard library the second tree is; 1: no second tree")
	flags.IntSliceVar(&o.Chunks, "chunks", []int{10_000, 100_000, 1_000_000}, "chunks of the indexes that are asked")
	flags.IntVar(&o.Queries, "queries", 50, "queries at each size")
	flags.StringVar(&o.Dir, "dir", "", "where trees and stores are made and removed (default: the system's temporary directory)")
	return cmd
}

// indexSummary puts the figures that one looks for first in front: quality in Go, the cost of the smaller tree, and the speed of the largest
// index.
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

func printIndex(w io.Writer, r index.Result) error {
	fmt.Fprintf(w, "embedder %s; %s, %d CPUs\n\n", r.Embedder, r.Go, r.CPUs)
	t := app.NewColumns(w)
	fmt.Fprintln(t, "FUNCTIONS OF\tNUMBER\tQUESTIONS\tBY\tFOUND FIRST\tIN THE FIRST 10\tMRR\tTO BM25\t")
	for _, q := range r.Quality {
		fmt.Fprintf(t, "%s\t%d\t%d\tBM25\t%.3f\t%.3f\t%.3f\t1\t\n", q.Language, q.Functions, q.Questions, q.BM25.Recall1, q.BM25.Recall10, q.BM25.MRR)
		fmt.Fprintf(t, "\t\t\tBM25 of textbooks\t%.3f\t%.3f\t%.3f\t%.2f\t\n", q.Textbook.Recall1, q.Textbook.Recall10, q.Textbook.MRR, q.Textbook.Recall10/max(q.BM25.Recall10, 1e-9))
		fmt.Fprintf(t, "\t\t\tvectors\t%.3f\t%.3f\t%.3f\t%.2f\t\n", q.Vectors.Recall1, q.Vectors.Recall10, q.Vectors.MRR, q.Vectors.Recall10/max(q.BM25.Recall10, 1e-9))
		fmt.Fprintf(t, "\t\t\tboth\t%.3f\t%.3f\t%.3f\t%.2f\t\n", q.Fusion.Recall1, q.Fusion.Recall10, q.Fusion.MRR, q.Fusion.Recall10/max(q.BM25.Recall10, 1e-9))
	}
	err := t.Flush()
	fmt.Fprintln(w)
	fmt.Fprintln(t, "TREE\tFILES\tCHUNKS\tFULL ms (CPU)\tUNCHANGED ms (CPU)\tFILES CHANGED\tUPDATE ms (CPU)\tBYTES/CHUNK\tQUERY ms\tGREP ms\t")
	for _, tree := range r.Trees {
		for i, u := range tree.Updates {
			if i == 0 {
				fmt.Fprintf(t, "%d×\t%d\t%d\t%.0f (%.0f)\t%.0f (%.0f)\t%d\t%.0f (%.0f)\t%.0f\t%.1f\t%.1f (%s)\t\n", tree.Times, tree.Files, tree.Chunks,
					tree.FullMS, tree.FullCPU, tree.UnchangedMS, tree.UnchangedCPU, u.Files, u.MS, u.CPU, tree.BytesPerChunk, tree.QueryMS, tree.GrepMS, tree.Grep)
				continue
			}
			fmt.Fprintf(t, "\t\t\t\t\t%d\t%.0f (%.0f)\t\t\t\t\n", u.Files, u.MS, u.CPU)
		}
	}
	err = errors.Join(err, t.Flush())
	fmt.Fprintln(w)
	fmt.Fprintln(t, "CHUNKS\tWARM p50 ms (CPU)\tp99\tCOLD p50 ms (CPU)\tp99\tOF THE NEAREST 10\tBYTES/CHUNK\t")
	for _, s := range r.Sizes {
		fmt.Fprintf(t, "%d\t%.1f (%.1f)\t%.1f\t%.1f (%.1f)\t%.1f\t%.3f\t%.0f\t\n", s.Chunks, s.WarmP50, s.WarmCPU, s.WarmP99, s.ColdP50, s.ColdCPU, s.ColdP99, s.Recall10, s.BytesPerChunk)
	}
	return errors.Join(err, t.Flush())
}
