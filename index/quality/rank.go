package quality

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/rondo-rl/rondo/index/words"
)

const (
	k1      = 1.2
	b       = 0.75
	rrf     = 60
	perCall = 64 // texts embedded at once
)

type posting struct {
	function int32
	count    int32
}

// Lexical ranks by BM25 over the words of path, symbol and text.
func (s *Set) Lexical() Ranking {
	postings := map[string][]posting{}
	lengths := make([]float64, len(s.Functions))
	total := 0.0
	for i := range s.Functions {
		f := &s.Functions[i]
		counts := map[string]int32{}
		list := append(words.Of(f.Path), words.Of(f.Embedded())...)
		for _, w := range list {
			counts[w]++
		}
		for w, n := range counts {
			postings[w] = append(postings[w], posting{int32(i), n})
		}
		lengths[i] = float64(len(list))
		total += lengths[i]
	}
	n := float64(len(s.Functions))
	mean := total / max(n, 1)
	return func(_ context.Context, question string) ([]int, error) {
		scores := make([]float64, len(s.Functions))
		list := words.Of(question)
		slices.Sort(list)
		for _, w := range slices.Compact(list) {
			df := float64(len(postings[w]))
			idf := math.Log(1 + (n-df+0.5)/(df+0.5))
			for _, p := range postings[w] {
				tf := float64(p.count)
				scores[p.function] += idf * tf * (k1 + 1) / (tf + k1*(1-b+b*lengths[p.function]/mean))
			}
		}
		return best(scores), nil
	}
}

// Embedder is what Semantic needs of one.
type Embedder interface {
	Embed(ctx context.Context, texts []string) ([][]float32, error)
}

// Semantic ranks by the angle between the vectors of question and function. Done is told how many functions are embedded.
func (s *Set) Semantic(ctx context.Context, e Embedder, done func(int)) (Ranking, error) {
	vectors := make([][]float32, 0, len(s.Functions))
	for len(vectors) < len(s.Functions) {
		var texts []string
		for i := len(vectors); i < min(len(vectors)+perCall, len(s.Functions)); i++ {
			texts = append(texts, s.Functions[i].Embedded())
		}
		list, err := e.Embed(ctx, texts)
		if err != nil {
			return nil, err
		}
		vectors = append(vectors, list...)
		if done != nil {
			done(len(vectors))
		}
	}
	return func(ctx context.Context, question string) ([]int, error) {
		asked, err := e.Embed(ctx, []string{question})
		if err != nil {
			return nil, err
		}
		scores := make([]float64, len(vectors))
		for i, v := range vectors {
			scores[i] = float64(dot(asked[0], v))
		}
		return best(scores), nil
	}, nil
}

func dot(a, b []float32) float32 {
	var s0, s1, s2, s3 float32
	i := 0
	for ; i+4 <= len(a) && i+4 <= len(b); i += 4 {
		s0 += a[i] * b[i]
		s1 += a[i+1] * b[i+1]
		s2 += a[i+2] * b[i+2]
		s3 += a[i+3] * b[i+3]
	}
	for ; i < len(a) && i < len(b); i++ {
		s0 += a[i] * b[i]
	}
	return s0 + s1 + s2 + s3
}

// Fused joins rankings by reciprocal rank.
func Fused(rankings ...Ranking) Ranking {
	return func(ctx context.Context, question string) ([]int, error) {
		scores := map[int]float64{}
		for _, rank := range rankings {
			list, err := rank(ctx, question)
			if err != nil {
				return nil, err
			}
			for place, f := range list {
				scores[f] += 1 / float64(rrf+place+1)
			}
		}
		list := make([]int, 0, len(scores))
		for f := range scores {
			list = append(list, f)
		}
		slices.SortFunc(list, func(a, b int) int { return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(a, b)) })
		return list, nil
	}
}

// best gives the functions with the highest scores above zero.
func best(scores []float64) []int {
	list := make([]int, 0, len(scores)/8)
	for i, score := range scores {
		if score > 0 {
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(a, b int) int { return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(a, b)) })
	return list[:min(len(list), Depth)]
}
