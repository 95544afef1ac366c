package main

import (
	"cmp"
	"math"
	"slices"

	"github.com/rondo-rl/rondo/index/embed/table"
)

// pair is an example by its words.
type pair struct {
	question, text []table.Weighted
	group          string
}

// vocabulary is which words have rows.
type vocabulary struct {
	words []string // in ascending order
	place map[string]int32
	idf   []float32 // of each row
}

// askedFor is how much more a word in a question counts than one in a text when words are chosen.
const askedFor = 4

func choose(pairs []pair, size int) *vocabulary {
	texts, score := map[string]int{}, map[string]int{}
	for i := range pairs {
		for _, w := range pairs[i].text {
			texts[w.Word]++
			score[w.Word]++
		}
		for _, w := range pairs[i].question {
			score[w.Word] += askedFor
		}
	}
	list := make([]string, 0, len(score))
	for w := range score {
		list = append(list, w)
	}
	slices.SortFunc(list, func(a, b string) int { return cmp.Or(cmp.Compare(score[b], score[a]), cmp.Compare(a, b)) })
	list = list[:min(size, len(list))]
	slices.Sort(list)
	v := &vocabulary{words: list, place: map[string]int32{}}
	for i, w := range list {
		v.place[w] = int32(i)
		df := float64(texts[w])
		v.idf = append(v.idf, float32(math.Log(1+(float64(len(pairs))-df+0.5)/(df+0.5))))
	}
	return v
}

// bag is a text as the model sees it: rows, and how much of each.
type bag struct {
	rows    []int32
	weights []float32
}

func (v *vocabulary) bag(list []table.Weighted) bag {
	b := bag{make([]int32, 0, len(list)), make([]float32, 0, len(list))}
	for _, w := range list {
		if row, ok := v.place[w.Word]; ok {
			b.rows = append(b.rows, row)
			b.weights = append(b.weights, float32(w.Weight)/table.One*v.idf[row])
		}
	}
	return b
}
