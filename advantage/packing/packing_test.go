package packing

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
)

func model(t *testing.T, name string) Cost {
	t.Helper()
	cost, err := Model(name)
	if err != nil {
		t.Fatal(err)
	}
	return cost
}

func TestModels(t *testing.T) {
	for _, c := range []struct {
		name   string
		tokens int
		want   float64
	}{
		{"", 1000, 1000}, {runfile.CostTokens, 0, 0}, {runfile.CostTokens, 32768, 32768},
		// 6h = 24,576: there attention costs as much as all matrices do.
		{runfile.CostAttention, 0, 0}, {runfile.CostAttention, 24576, 2 * 24576},
		{runfile.CostAttention, 12288, 1.5 * 12288},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := model(t, c.name)(c.tokens); got != c.want {
				t.Errorf("%q: %d tokens cost %g, want %g", c.name, c.tokens, got, c.want)
			}
		})
	}
	if _, err := Model("flops"); err == nil {
		t.Error("an unknown model was found")
	}
}

func TestBalance(t *testing.T) {
	for _, c := range []struct {
		name  string
		costs []float64
		ranks int
		want  []int
	}{
		{"one rank takes all", []float64{3, 1, 2}, 1, []int{0, 0, 0}},
		{"the longest first, each to the least loaded", []float64{2, 7, 6, 5, 4, 3}, 2, []int{1, 0, 1, 1, 0, 0}},
		{"equal ones in turn", []float64{1, 1, 1, 1}, 2, []int{0, 1, 0, 1}},
		{"fewer items than ranks", []float64{5}, 3, []int{0}},
		{"nothing", nil, 2, []int{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Balance(c.costs, c.ranks); !slices.Equal(got, c.want) {
				t.Errorf("%s: %v, want %v", c.name, got, c.want)
			}
		})
	}
}

func TestPack(t *testing.T) {
	for _, c := range []struct {
		name   string
		tokens [][]int
		limit  int
		want   [][]int
		count  int
	}{
		{"first fit decreasing", [][]int{{4, 8, 1, 4, 2, 1}}, 10, [][]int{{1, 0, 1, 1, 0, 1}}, 2},
		{"too long for any", [][]int{{30, 5, 5}}, 10, [][]int{{0, 1, 1}}, 2},
		{"the other rank splits its largest", [][]int{{9, 8, 7}, {4, 3, 2}}, 10, [][]int{{0, 1, 2}, {0, 1, 2}}, 3},
		{"too few samples: the last are empty", [][]int{{9, 8, 7}, {4}}, 10, [][]int{{0, 1, 2}, {0}}, 3},
		{"a rank without samples", [][]int{{1, 1}, nil}, 10, [][]int{{0, 0}, {}}, 1},
		{"nothing at all has one micro-batch", [][]int{nil}, 10, [][]int{{}}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			places, count := Pack(c.tokens, c.limit, model(t, runfile.CostTokens))
			if count != c.count || !slices.EqualFunc(places, c.want, slices.Equal[[]int]) {
				t.Errorf("%s: %v in %d micro-batches, want %v in %d", c.name, places, count, c.want, c.count)
			}
		})
	}
}

// lengths draws lengths as rollouts have them: most are short, some are very long.
func lengths(rng *rand.Rand, n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = 1 + int(math.Exp(rng.Float64()*10))
	}
	return all
}

// Every group goes to one rank, and no rank is loaded by more than the mean and one group.
func TestBalanceKeepsItsBound(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		n, ranks := rng.IntN(60), 1+rng.IntN(9)
		costs := make([]float64, n)
		var sum, most float64
		for i, l := range lengths(rng, n) {
			costs[i] = float64(l)
			sum, most = sum+costs[i], max(most, costs[i])
		}
		load := make([]float64, ranks)
		for i, rank := range Balance(costs, ranks) {
			load[rank] += costs[i]
		}
		total := 0.0
		for _, l := range load {
			total += l
			if l > sum/float64(ranks)+most+1e-6 {
				t.Fatalf("a rank has %g of %g over %d ranks, the largest is %g", l, sum, ranks, most)
			}
		}
		if math.Abs(total-sum) > 1e-6*sum {
			t.Fatalf("%g of %g is on the ranks", total, sum)
		}
	}
}

// Every sample is in one micro-batch that exists, none is too full, every rank has the same number
// of them, and a rank has an empty one only when each of its samples has one for itself.
func TestPackConserves(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for round := range 500 {
		ranks, limit := 1+rng.IntN(6), 1+rng.IntN(20000)
		tokens := make([][]int, ranks)
		for r := range tokens {
			tokens[r] = lengths(rng, rng.IntN(40))
		}
		cost := model(t, []string{runfile.CostTokens, runfile.CostAttention}[round%2])
		places, count := Pack(tokens, limit, cost)
		if again, _ := Pack(tokens, limit, cost); !slices.EqualFunc(places, again, slices.Equal[[]int]) {
			t.Fatal("packing again packs otherwise")
		}
		fewest := 1
		for r := range tokens {
			checkRank(t, tokens[r], places[r], count, limit, cost)
			fewest = max(fewest, len(firstFit(tokens[r], limit, cost)))
		}
		if count != fewest {
			t.Fatalf("%d micro-batches, but the fullest rank needs %d", count, fewest)
		}
	}
}

func checkRank(t *testing.T, tokens, places []int, count, limit int, cost Cost) {
	t.Helper()
	if len(places) != len(tokens) {
		t.Fatalf("%d places for %d samples", len(places), len(tokens))
	}
	size, samples, costs := make([]int, count), make([]int, count), make([]float64, count)
	for i, at := range places {
		if at < 0 || at >= count {
			t.Fatalf("sample %d is in micro-batch %d of %d", i, at, count)
		}
		size[at], samples[at], costs[at] = size[at]+tokens[i], samples[at]+1, costs[at]+cost(tokens[i])
	}
	for at := range count {
		if size[at] > limit && samples[at] > 1 {
			t.Fatalf("a micro-batch of %d samples has %d tokens, the limit is %d", samples[at], size[at], limit)
		}
		if at > 0 && costs[at] > costs[at-1]*(1+1e-9) {
			t.Fatalf("micro-batch %d costs more than the one before it", at)
		}
		if samples[at] == 0 && len(tokens) >= count {
			t.Fatalf("an empty micro-batch with %d samples for %d", len(tokens), count)
		}
	}
}

// At most 11/9 of the fewest possible micro-batches, and 6/9 of one: whole bins that were cut into
// pieces say how few are possible.
func TestFirstFitDecreasingKeepsItsBound(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 300 {
		bins, limit := 1+rng.IntN(20), 1000
		var tokens []int
		for range bins {
			for left := limit; left > 0; {
				piece := min(left, 1+rng.IntN(limit))
				tokens = append(tokens, piece)
				left -= piece
			}
		}
		rng.Shuffle(len(tokens), func(i, j int) { tokens[i], tokens[j] = tokens[j], tokens[i] })
		if n := len(firstFit(tokens, limit, model(t, ""))); 9*n > 11*bins+6 {
			t.Fatalf("%d micro-batches where %d are enough", n, bins)
		}
	}
}
