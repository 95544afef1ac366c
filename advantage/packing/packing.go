// Package packing spreads training samples over data-parallel ranks and packs each rank's
// samples into micro-batches.
//
// All of it is pure and deterministic: the same input gives the same assignment, and ties go
// to whoever stands first.
package packing

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rondo-rl/rondo/events/runfile"
)

// Cost is what a sample of some tokens costs a trainer, in units of one token's share
// of the layers' matrices.
type Cost func(tokens int) float64

// hidden is the hidden size that the model of attention assumes, that of models of about
// eight billion parameters.
const hidden = 4096

// Model finds a cost model by its name in the run file; "" is events.CostTokens.
//
// events.CostTokens is n for n tokens. events.CostAttention is n·(1 + n/(6h)): a transformer's
// forward and backward passes take 96·n·h²·(1 + n/(6h)) operations a layer (Narayanan et al. 2021,
// arXiv:2104.04473), where the second part is attention. With h = 4096 a sample of 24,576 tokens
// costs twice what its tokens do.
func Model(name string) (Cost, error) {
	switch name {
	case "", runfile.CostTokens:
		return func(tokens int) float64 { return float64(tokens) }, nil
	case runfile.CostAttention:
		return func(tokens int) float64 { return float64(float64(tokens) * (1 + float64(tokens)/(6*hidden))) }, nil
	}
	return nil, fmt.Errorf("there is no cost model %q: use %s or %s", name, runfile.CostTokens, runfile.CostAttention)
}

// Balance gives each item, for example a group of rollouts, the rank that it goes to: the costliest
// first, each to the rank with the least cost so far (Graham 1969, longest processing time first).
// No rank gets more than the mean cost plus one item's.
func Balance(costs []float64, ranks int) []int {
	load, places := make([]float64, ranks), make([]int, len(costs))
	for _, item := range descending(len(costs), func(i int) float64 { return costs[i] }) {
		rank := 0
		for r := range load {
			if load[r] < load[rank] {
				rank = r
			}
		}
		load[rank] += costs[item]
		places[item] = rank
	}
	return places
}

// descending lists the indices of n items, the costliest first, equal ones in their order.
func descending(n int, cost func(i int) float64) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(cost(b), cost(a)) })
	return order
}

// Pack gives each sample of each rank its micro-batch, and says how many micro-batches
// every rank has: as many as the rank that needs the most, at least one. tokens are the
// lengths of the samples by rank.
//
// Samples are packed first fit decreasing (at most 11/9 of the fewest possible, and 6/9 of one:
// Dósa 2007) by their tokens into micro-batches of at most limit tokens; a longer sample is one by
// itself. A rank that needs fewer micro-batches splits its costliest ones; where it has too few
// samples its last ones are empty. The costliest comes first on every rank, so that ranks that wait
// for each other after every micro-batch wait little.
func Pack(tokens [][]int, limit int, cost Cost) (places [][]int, microBatches int) {
	bins := make([][]bin, len(tokens))
	microBatches = 1
	for rank := range tokens {
		bins[rank] = firstFit(tokens[rank], limit, cost)
		microBatches = max(microBatches, len(bins[rank]))
	}
	places = make([][]int, len(tokens))
	for rank := range tokens {
		split := splitTo(bins[rank], microBatches, tokens[rank], cost)
		slices.SortStableFunc(split, func(a, b bin) int { return cmp.Compare(b.cost, a.cost) })
		places[rank] = make([]int, len(tokens[rank]))
		for at, b := range split {
			for _, sample := range b.samples {
				places[rank][sample] = at
			}
		}
	}
	return places, microBatches
}

// bin is a micro-batch in the making.
type bin struct {
	samples []int
	tokens  int
	cost    float64
}

func (b *bin) add(sample, tokens int, cost Cost) {
	b.samples, b.tokens, b.cost = append(b.samples, sample), b.tokens+tokens, b.cost+cost(tokens)
}

func firstFit(tokens []int, limit int, cost Cost) []bin {
	var bins []bin
	for _, sample := range descending(len(tokens), func(i int) float64 { return float64(tokens[i]) }) {
		at := slices.IndexFunc(bins, func(b bin) bool { return b.tokens <= limit-tokens[sample] })
		if at < 0 {
			at, bins = len(bins), append(bins, bin{})
		}
		bins[at].add(sample, tokens[sample], cost)
	}
	return bins
}

// splitTo splits the costliest micro-batches of several samples until there are count of them,
// or none is left to split.
func splitTo(bins []bin, count int, tokens []int, cost Cost) []bin {
	for len(bins) < count {
		costliest := -1
		for i, b := range bins {
			if len(b.samples) > 1 && (costliest < 0 || b.cost > bins[costliest].cost) {
				costliest = i
			}
		}
		if costliest < 0 {
			return bins
		}
		var halves [2]bin
		whole := bins[costliest].samples
		costs := make([]float64, len(whole))
		for i, sample := range whole {
			costs[i] = cost(tokens[sample])
		}
		for i, half := range Balance(costs, 2) {
			halves[half].add(whole[i], tokens[whole[i]], cost)
		}
		bins[costliest] = halves[0]
		bins = append(bins, halves[1])
	}
	return bins
}
