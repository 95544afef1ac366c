// Package table is the form of a static embedder: a row of int8 for each word. A text's vector is
// the sum of its words' rows.
//
// All sums are of whole numbers, and the one square root and division at the end are exact to the
// last bit by IEEE 754, so every platform gives the same vectors bit for bit.
package table

import "math"

// Table is immutable, and safe for concurrent use.
type Table struct {
	Header
	words  []string // in ascending order; word i has row i
	scales []uint16 // of each row
	rows   []int8   // Dimensions of each row
	place  map[string]int32
}

// Header says what a table is made of.
type Header struct {
	Format     int    `json:"format"`
	WordsForm  int    `json:"words_form"` // words.Version
	Dimensions int    `json:"dimensions"`
	Words      int    `json:"words"`
	Trained    Corpus `json:"trained"`
}

// Corpus is what a table was trained on.
type Corpus struct {
	Sources  int            `json:"sources"`  // modules and packages
	Examples map[string]int `json:"examples"` // by kind
	Withheld int            `json:"withheld"` // functions left out as they are some that quality is measured with
	List     string         `json:"list"`     // SHA-256 of the list of sources
	Content  string         `json:"content"`  // SHA-256 over the examples
	Seed     uint64         `json:"seed"`
}

// Embed gives the vector of a text: of unit length, or zero where no word of it is known.
func (t *Table) Embed(text string) []float32 {
	d := t.Dimensions
	sum := make([]int64, d)
	for _, w := range Bag(text) {
		if row, ok := t.place[w.Word]; ok {
			t.add(sum, int(row), int64(w.Weight))
		}
	}
	vector := make([]float32, d)
	square := 0.0
	for _, x := range sum {
		square += float64(float64(x) * float64(x)) // the conversion keeps this from being fused with the sum
	}
	if square > 0 {
		length := math.Sqrt(square)
		for i, x := range sum {
			vector[i] = float32(float64(x) / length)
		}
	}
	return vector
}

func (t *Table) add(sum []int64, row int, times int64) {
	times *= int64(t.scales[row])
	values := t.rows[row*len(sum):][:len(sum)]
	for i, v := range values {
		sum[i] += times * int64(v)
	}
}

// Quantise makes a table of rows of floats: those of the words, which are in ascending order.
func Quantise(words []string, dimensions int, rows []float32) *Table {
	t := empty(words, dimensions)
	largest, most := make([]float32, len(t.scales)), float32(0)
	for i := range largest {
		for _, x := range rows[i*dimensions:][:dimensions] {
			largest[i] = max(largest[i], x, -x)
		}
		most = max(most, largest[i])
	}
	for i, l := range largest {
		if l == 0 {
			continue
		}
		t.scales[i] = uint16(max(1, math.Round(float64(l/most)*math.MaxUint16)))
		for j, x := range rows[i*dimensions:][:dimensions] {
			t.rows[i*dimensions+j] = int8(math.Round(float64(x/l) * math.MaxInt8))
		}
	}
	return t
}
