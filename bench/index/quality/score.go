package quality

import (
	"context"
	"slices"

	"github.com/rondo-rl/rondo/index/search"
)

// Depth is how many answers count.
const Depth = search.MaxLimit

// Ranking gives the functions that answer a question, the best first.
type Ranking func(ctx context.Context, question string) ([]int, error)

// Score of a ranking over a set's questions.
type Score struct {
	Recall1  float64 `json:"recall1"`  // share of the questions whose answer comes first
	Recall10 float64 `json:"recall10"` // and among the first ten
	MRR      float64 `json:"mrr"`      // mean of 1/place, 0 below Depth
}

// Score asks every question. Done receives how many are answered.
func (s *Set) Score(ctx context.Context, rank Ranking, done func(int)) (Score, error) {
	var sum Score
	for i, q := range s.Questions {
		list, err := rank(ctx, q.Text)
		if err != nil {
			return Score{}, err
		}
		if place := slices.Index(list[:min(len(list), Depth)], q.Answer); place >= 0 {
			sum.MRR += 1 / float64(place+1)
			if place < 1 {
				sum.Recall1++
			}
			if place < 10 {
				sum.Recall10++
			}
		}
		if done != nil {
			done(i + 1)
		}
	}
	n := float64(max(len(s.Questions), 1))
	return Score{Recall1: sum.Recall1 / n, Recall10: sum.Recall10 / n, MRR: sum.MRR / n}, nil
}
