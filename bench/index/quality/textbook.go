package quality

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"unicode"
)

// Textbook is BM25 as papers on code search have it for a rival: over the parts of identifiers
// alone, without stems, whole identifiers or the words of paths, of which the index's own BM25
// knows. The index has no part in it.
type Textbook struct {
	postings map[string][]posting
	lengths  []float64
	average  float64
}

type posting struct {
	function int
	count    float64
}

// Parameters of BM25 as in its literature.
const textbookK1, textbookB = 1.2, 0.75

// Textbook counts the words of the functions' texts.
func (s *Set) Textbook() *Textbook {
	b := &Textbook{postings: map[string][]posting{}, lengths: make([]float64, len(s.Functions))}
	for i := range s.Functions {
		counts := map[string]float64{}
		for _, w := range plainWords(s.Functions[i].Embedded()) {
			counts[w]++
			b.lengths[i]++
		}
		for w, n := range counts {
			b.postings[w] = append(b.postings[w], posting{i, n})
		}
		b.average += b.lengths[i] / float64(len(s.Functions))
	}
	return b
}

// Rank ranks the functions for a question.
func (b *Textbook) Rank(_ context.Context, question string) ([]int, error) {
	asked := plainWords(question)
	slices.Sort(asked)
	scores := map[int]float64{}
	for _, w := range slices.Compact(asked) {
		list := b.postings[w]
		df, n := float64(len(list)), float64(len(b.lengths))
		idf := math.Log(1 + (n-df+0.5)/(df+0.5))
		for _, p := range list {
			scores[p.function] += idf * p.count * (textbookK1 + 1) / (p.count +
				textbookK1*(1-textbookB+textbookB*b.lengths[p.function]/b.average))
		}
	}
	found := make([]int, 0, len(scores))
	for i := range scores {
		found = append(found, i)
	}
	slices.SortFunc(found, func(x, y int) int { return cmp.Or(cmp.Compare(scores[y], scores[x]), cmp.Compare(x, y)) })
	return found[:min(len(found), Depth)], nil
}

// plainWords cuts a text into words of letters and digits, and these where a capital follows a
// small letter; in lower case.
func plainWords(text string) (list []string) {
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool {
		return !unicode.IsLetter(r) &&
			!unicode.IsDigit(r)
	}) {
		start, small := 0, false
		for i, r := range word {
			if unicode.IsUpper(r) && small {
				list = append(list, strings.ToLower(word[start:i]))
				start = i
			}
			small = unicode.IsLower(r)
		}
		list = append(list, strings.ToLower(word[start:]))
	}
	return list
}
