package evaluation

import "slices"

// Histogram counts whole numbers: Counts[i] of them are in [Edges[i], Edges[i+1]). There is one
// edge more than counts, and none of either where there are no values.
type Histogram struct {
	Edges  []int `json:"edges"`
	Counts []int `json:"counts"`
}

const maxBins = 20

// histogram spreads values, none of which is negative, over bins of equal width: 1, 2
// or 5 times a power of ten.
func histogram(values []int) Histogram {
	if len(values) == 0 {
		return Histogram{Edges: []int{}, Counts: []int{}}
	}
	least, most := slices.Min(values), slices.Max(values)
	width := binWidth(least, most)
	first := least / width
	h := Histogram{Counts: make([]int, most/width-first+1)}
	for i := range len(h.Counts) + 1 {
		h.Edges = append(h.Edges, (first+i)*width)
	}
	for _, v := range values {
		h.Counts[v/width-first]++
	}
	return h
}

func binWidth(least, most int) int {
	for power := 1; ; power *= 10 {
		for _, factor := range []int{1, 2, 5} {
			if width := factor * power; most/width-least/width < maxBins {
				return width
			}
		}
	}
}
