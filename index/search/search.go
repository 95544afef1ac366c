// Package search ranks the chunks of an index for a question: by the words that they share with it
// and by the likeness of their vectors, joined by their scores.
package search

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/index/segment"
)

// Query is what somebody looks for.
type Query struct {
	// Text is the question as it was asked: what in it looks like the name of a
	// declaration is looked up as such.
	Text string
	// Words are the text's words, as those of the index were made. The first
	// MaxWords different ones count.
	Words []string
	// Vector is the text's vector by the index's embedder, or nil to go by words alone.
	Vector []float32
	// Directory is a folder, or a file, within which to look; "" for everywhere.
	Directory string
	// Limit is how many hits are wanted, 10 if it is 0; at most MaxLimit.
	Limit int
}

// Limits of a query.
const (
	MaxWords = 64
	MaxLimit = 100
	maxNames = 8
	maxText  = 16 << 10 // bytes in which names are looked for
)

// Hit is a chunk that was found.
type Hit struct {
	Path      string `json:"path"`
	FirstLine int    `json:"first_line"` // from 1
	LastLine  int    `json:"last_line"`  // included
	Start     int    `json:"start"`      // bytes of the file, from 0
	End       int    `json:"end"`        // not included
	Symbol    string `json:"symbol,omitempty"`
	// Score orders the hits of one answer; it is none of a probability.
	Score float64 `json:"score"`
	// WordRank and VectorRank are the places among the chunks by words and by vectors, from 1; 0
	// where a chunk is not among the first of these.
	WordRank   int `json:"word_rank,omitempty"`
	VectorRank int `json:"vector_rank,omitempty"`
}

// How the lists are joined: each list's scores count as shares of its best one. Chosen with
// functions of modules that neither the embedder has learnt from nor quality is measured with:
// reciprocal ranks, and scores as they lie between a list's ends, found less.
const (
	listed     = 200 // of each list take part
	likeness   = 2.0 // what the vectors weigh, and the words one
	nameOffset = 60  // the k of reciprocal ranks, by which those that declare a name are ordered
	namedWords = 4.0 // what the words weigh where a question looks for a name: more than likeness
	namedExact = 6.0 // and what the first one weighs that declares it: as much as both
)

// What a chunk's score is multiplied with for the kind of its file.
const (
	testFactor      = 0.7
	vendoredFactor  = 0.5
	generatedFactor = 0.5
)

// Run answers a query from an index, the best hit first. Up to the number of chunks at which an
// index is searched through clusters, equal trees give equal answers, however their indexes came
// about. It takes two round trips to the store beside that for the manifest.
func Run(ctx context.Context, b *segment.Base, q Query) ([]Hit, error) {
	limit := cmp.Or(q.Limit, 10)
	if limit < 0 || limit > MaxLimit {
		return nil, fmt.Errorf("a limit of %d hits: must be within 1 and %d", q.Limit, MaxLimit)
	}
	directory, err := clean(q.Directory)
	if err != nil {
		return nil, err
	}
	r := segment.Request{Words: different(q.Words, MaxWords), Names: namesIn(q.Text),
		Vector: q.Vector, Directory: directory}
	if slices.IndexFunc(q.Vector, func(x float32) bool { return x != 0 }) < 0 {
		r.Vector = nil
	}
	v, err := b.Read(ctx, r)
	if err != nil {
		return nil, err
	}
	byWords, near, named, tests := words(v, len(r.Words)), v.Nearest(estimated), v.Named(), looksForTests(r.Words)
	all := fuse(v, byWords, near, named, tests)
	all = all[:min(len(all), max(limit, located))]
	at := make([]segment.Row, len(all))
	for i := range all {
		at[i] = all[i].row
	}
	estimates := slices.ContainsFunc(near, func(n segment.Neighbour) bool { return n.Estimate })
	locations, err := b.Locate(ctx, v, at, near)
	if err != nil {
		return nil, err
	}
	where := map[segment.Row]segment.Location{}
	for i, l := range locations {
		where[at[i]] = l
	}
	if estimates { // the ranks are others now that the scores are known
		all = fuse(v, byWords, near, named, tests)
	}
	var hits []Hit
	for _, s := range all {
		if l, ok := where[s.row]; ok {
			hits = append(hits, Hit{Path: l.Path, FirstLine: l.FirstLine, LastLine: l.LastLine, Start: l.Start,
				End: l.End, Symbol: l.Symbol,
				Score: s.score, WordRank: s.words, VectorRank: s.vector})
		}
	}
	slices.SortStableFunc(hits, func(a, b Hit) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), strings.Compare(a.Path, b.Path), cmp.Compare(a.Start, b.Start))
	})
	return hits[:min(len(hits), limit)], nil
}

const (
	// estimated is how many rows get their score where it was an estimate.
	estimated = 256
	// located is how many of the best chunks are located at least, so that ties at the limit are
	// broken by path; and, as they are the best by estimates, so that they hold the best by scores.
	located = 100
)

// clean makes a directory one of the index's: without slashes at its ends, "" for the root.
func clean(directory string) (string, error) {
	if directory == "" {
		return "", nil
	}
	cleaned := path.Clean("/" + directory)[1:]
	if len(cleaned) > segment.MaxPath || strings.HasPrefix(path.Clean(directory), "..") {
		return "", fmt.Errorf("directory %.200q is outside of the tree", directory)
	}
	return cleaned, nil
}

func different(words []string, limit int) (out []string) {
	seen := map[string]bool{}
	for _, w := range words {
		if !seen[w] && len(out) < limit {
			seen[w] = true
			out = append(out, w)
		}
	}
	slices.Sort(out) // scores are summed in this order
	return out
}

// looksForTests reports whether tests are what is asked for.
func looksForTests(words []string) bool {
	for _, w := range words {
		if w == "test" || w == "tests" || w == "testing" || w == "spec" || w == "fixture" {
			return true
		}
	}
	return false
}

// scored is a row on its way to a hit.
type scored struct {
	row           segment.Row
	score         float64
	words, vector int // ranks
}

// fuse joins the lists.
func fuse(v *segment.View, byWords, byVector []segment.Neighbour, named []segment.Row, tests bool) []scored {
	all := map[segment.Row]*scored{}
	of := func(r segment.Row) *scored {
		if all[r] == nil {
			all[r] = &scored{row: r}
		}
		return all[r]
	}
	weight := 1.0
	if len(named) > 0 {
		weight = namedWords
	}
	byVector = byVector[:min(len(byVector), listed)]
	for i, n := range byWords {
		of(n.Row).words = i + 1
	}
	for i, n := range byVector {
		of(n.Row).vector = i + 1
	}
	// Those that declare the name come in the order of their words; one that is not among the first
	// of these comes after them all.
	for i, r := range namedInOrder(v, byWords, named) {
		of(r).score = namedExact * (nameOffset + 1) / float64(nameOffset+i+1)
	}
	out := make([]scored, 0, len(all))
	for _, s := range all {
		s.score += weight*share(byWords, s.words) + likeness*share(byVector, s.vector)
		class := v.Class(s.row)
		if class&segment.Test != 0 && !tests {
			s.score *= testFactor
		}
		if class&segment.Vendored != 0 {
			s.score *= vendoredFactor
		}
		if class&segment.Generated != 0 {
			s.score *= generatedFactor
		}
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b scored) int {
		return cmp.Or(cmp.Compare(b.score, a.score),
			v.Compare(a.row, b.row))
	})
	return out
}

// share is the score at a rank of a list as a share of the best one. A row that is not in a full
// list may be hardly worse than the last that is, and counts as that one; where the list has room,
// it has nothing of what the list is about.
func share(list []segment.Neighbour, rank int) float64 {
	if rank == 0 && len(list) == listed {
		rank = listed
	}
	if rank == 0 || list[0].Score <= 0 {
		return 0
	}
	return max(list[rank-1].Score, 0) / list[0].Score
}

func namedInOrder(v *segment.View, byWords []segment.Neighbour, named []segment.Row) []segment.Row {
	rank := map[segment.Row]int{}
	for i, n := range byWords {
		rank[n.Row] = i + 1
	}
	slices.SortFunc(named, func(a, b segment.Row) int {
		return cmp.Or(cmp.Compare(cmp.Or(rank[a], math.MaxInt), cmp.Or(rank[b], math.MaxInt)), v.Compare(a, b))
	})
	return named[:min(len(named), listed)]
}
