package table

import (
	"math"
	"strings"

	"github.com/rondo-rl/rondo/index/words"
)

// Weighted is a word of a text with its weight there.
type Weighted struct {
	Word   string
	Weight int32 // in units of 1/One
}

// One is the weight of a word that occurs once in a text of one line.
const One = 64

// firstLine is how often a word of the first line counts where more lines
// follow: it names the symbol.
const firstLine = 3

// weights of a word by how often it occurs: One × log2(1+n).
var weights = func() (list [256]int32) {
	for n := range list {
		list[n] = int32(math.Round(One * math.Log2(1+float64(n))))
	}
	return list
}()

// Bag gives the words of a text, each once, in the order in which they first occur.
func Bag(text string) []Weighted {
	line, rest, more := strings.Cut(text, "\n")
	first, other := words.Of(line), words.Of(rest)
	times := 1
	if more {
		times = firstLine
	}
	list := make([]Weighted, 0, len(first)+len(other))
	place := make(map[string]int32, len(first)+len(other))
	add := func(w string, times int) {
		i, ok := place[w]
		if !ok {
			i = int32(len(list))
			place[w] = i
			list = append(list, Weighted{Word: w})
		}
		list[i].Weight += int32(times)
	}
	for _, w := range first {
		add(w, times)
	}
	for _, w := range other {
		add(w, 1)
	}
	for i := range list {
		list[i].Weight = weights[min(int(list[i].Weight), len(weights)-1)]
	}
	return list
}
