package search

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/rondo-rl/rondo/index/segment"
)

// Parameters of BM25 as in its literature: how soon repetitions count for nothing more, and how
// much long chunks are held back.
const (
	bm25K1 = 1.2
	bm25B  = 0.75
)

// words ranks the live rows by BM25: sum over words of idf · tf · (k1+1) / (tf + k1 · (1 - b
// + b · length / average)).
func words(v *segment.View, n int) []segment.Neighbour {
	if v.Rows == 0 {
		return nil
	}
	average := max(float64(v.Words)/float64(v.Rows), 1)
	var sums [][]float64 // by part and row
	var touched [][]uint32
	for i := range n {
		df := 0
		v.Postings(i, func(_, _ int, list []segment.Posting) { df += len(list) })
		idf := math.Log(1 + (float64(v.Rows-df)+0.5)/(float64(df)+0.5))
		v.Postings(i, func(part, rows int, list []segment.Posting) {
			if part == len(sums) {
				sums, touched = append(sums, make([]float64, rows)), append(touched, nil)
			}
			for _, p := range list {
				tf, length := float64(p.Count), float64(v.Length(segment.RowOf(part, p.Row)))
				if sums[part][p.Row] == 0 {
					touched[part] = append(touched[part], p.Row)
				}
				sums[part][p.Row] += idf * (tf * (bm25K1 + 1) / (tf + bm25K1*(1-bm25B+bm25B*length/average)))
			}
		})
	}
	var all []segment.Neighbour
	for part := range sums {
		for _, row := range touched[part] {
			if r := segment.RowOf(part, row); v.Contains(r) {
				all = append(all, segment.Neighbour{Row: r, Score: sums[part][row]})
			}
		}
	}
	return best(v, all)
}

// best gives the first of all rows in order.
func best(v *segment.View, all []segment.Neighbour) []segment.Neighbour {
	if len(all) > 4*listed {
		// Only those that can be among the first are put in order.
		scores := make([]float64, len(all))
		for i := range all {
			scores[i] = all[i].Score
		}
		slices.Sort(scores)
		least := scores[len(scores)-listed]
		all = slices.DeleteFunc(all, func(n segment.Neighbour) bool { return n.Score < least })
	}
	slices.SortFunc(all, func(a, b segment.Neighbour) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), v.Compare(a.Row, b.Row))
	})
	return all[:min(len(all), listed)]
}

// namesIn gives what in a text looks like the name of a declaration, in lower case: what is
// composed or qualified, or called, or quoted as code; and a text that is one word.
func namesIn(text string) (names []string) {
	if len(text) > maxText {
		text = text[:maxText]
	}
	tokens := strings.FieldsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_.:$#()`*&", r)
	})
	for _, token := range tokens {
		name := strings.Trim(asName.Replace(token), ".:$#")
		if name == "" || len(names) == maxNames {
			continue
		}
		if len(tokens) == 1 || strings.HasSuffix(strings.TrimRight(token, ".:`"), "()") ||
			strings.HasPrefix(token, "`") || composed(name) {
			names = append(names, strings.ToLower(name))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// asName takes away what is around and within a name in code:
// (*Reader).ReadAll() is Reader.ReadAll.
var asName = strings.NewReplacer("(", "", ")", "", "*", "", "&", "", "`", "")

// composed reports whether a word is one that nobody writes but in code: with an underscore, a
// qualifier, a capital letter after a small one, or a small one after two capitals.
func composed(name string) bool {
	small, capitals := false, 0
	for i, r := range name {
		switch {
		case r == '_' || r == ':' || r == '.' && i > 0 && i+1 < len(name):
			return true
		case unicode.IsUpper(r) && small, unicode.IsLower(r) && capitals > 1:
			return true
		}
		if small = unicode.IsLower(r); unicode.IsUpper(r) {
			capitals++
		} else {
			capitals = 0
		}
	}
	return false
}
