package behaviour

import (
	"cmp"
	"math"
	"math/big"
	"math/bits"
	"slices"

	"github.com/rondo-rl/rondo/events"
)

// Figure is how a number is spread over the rollouts that have it. Median and P90 are exact up to
// 511, and off by less than 0.2 % above.
type Figure struct {
	Rollouts int     `json:"rollouts"`
	Mean     float64 `json:"mean"`
	Median   int64   `json:"median"`
	P90      int64   `json:"p90"`
}

// spread counts whole numbers in bins, of which there are at most 14,336,
// however many numbers there are.
type spread struct {
	bins []bin // in order
	n    int
	sum  int64
}

// bin holds n numbers.
type bin struct{ at, n int }

// Below exact, each number has a bin of its own; each doubling above has exact/2 of them.
const exact = 512

func binOf(v int64) int {
	if v < exact {
		return int(v)
	}
	shift := bits.Len64(uint64(v)) - bits.Len(exact-1)
	return shift*exact/2 + int(v>>shift)
}

// middle is the number that stands for a bin.
func middle(at int) int64 {
	if at < exact {
		return int64(at)
	}
	shift := at/(exact/2) - 1
	first := int64(at-shift*exact/2) << shift
	return first + (int64(1)<<shift-1)/2
}

// add counts n times a number; a negative one, as no log should have it, counts as 0.
func (s *spread) add(v int64) {
	v = max(0, v)
	s.count(binOf(v), 1)
	s.sum = events.AddTokens(s.sum, v)
}

func (s *spread) count(at, n int) {
	i, found := slices.BinarySearchFunc(s.bins, at, func(b bin, at int) int { return cmp.Compare(b.at, at) })
	if !found {
		s.bins = slices.Insert(s.bins, i, bin{at: at})
	}
	s.bins[i].n += n
	s.n += n
}

func (s *spread) merge(other spread) {
	for _, b := range other.bins {
		s.count(b.at, b.n)
	}
	s.sum = events.AddTokens(s.sum, other.sum)
}

// figure is nil where nothing was counted.
func (s *spread) figure() *Figure {
	if s.n == 0 {
		return nil
	}
	return &Figure{Rollouts: s.n, Mean: float64(s.sum) / float64(s.n), Median: s.quantile(5), P90: s.quantile(9)}
}

// quantile is the least number that so many tenths of all do not exceed.
func (s *spread) quantile(tenths int) int64 {
	rank := (s.n*tenths + 9) / 10
	for _, b := range s.bins {
		if rank -= b.n; rank <= 0 {
			return middle(b.at)
		}
	}
	return 0
}

// total is an exact sum of floats: their order must not matter.
type total struct {
	sum *big.Float
	n   int
}

// allBits of every float64, and of the sum of more than there can be.
const allBits = 2200

func (t *total) add(v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) { // JSON has none
		return
	}
	t.plus(new(big.Float).SetFloat64(v), 1)
}

func (t *total) plus(v *big.Float, n int) {
	if t.sum == nil {
		t.sum = new(big.Float).SetPrec(allBits)
	}
	t.sum.Add(t.sum, v)
	t.n += n
}

func (t *total) merge(other total) {
	if other.n > 0 {
		t.plus(other.sum, other.n)
	}
}

// mean is nil where nothing was added.
func (t *total) mean() *float64 {
	if t.n == 0 {
		return nil
	}
	mean, _ := new(big.Float).Quo(t.sum, new(big.Float).SetInt64(int64(t.n))).Float64()
	return &mean
}
