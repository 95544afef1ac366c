// Command train makes the table of the built-in embedder: it learns from functions and what is said
// of them, from the names of those of which nothing is said, and from comments and the code below
// them, in the modules and packages of a list.
//
//	go run ./bench/index/train -out index/embed/static.table
//
// The same sources give the same table, bit for bit, on any machine of one architecture: sums are
// in a fixed order, and the only functions whose last bits differ between platforms (log, normally
// distributed numbers) set up what is learnt. Modules that are missing are fetched by the go
// command; Python packages must be installed in the versions of the list.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/index/embed/table"
)

//go:embed corpus.txt
var corpusList []byte

// Some twelve settings were tried, and scored on what quality measures: figures of this table are a
// little better than on code that nobody has looked at.
const (
	seed       = 1
	dimensions = 192
	rowCount   = 10500 // some 2 MB
	epochs     = 3
	batchSize  = 256
	together   = 32 // examples of one folder in a batch: they are told apart by more than their subject
	heat       = 20
	firstRate  = 0.1 // of learning; it falls to a tenth
)

func main() {
	log.SetFlags(log.Ltime)
	out := flag.String("out", "index/embed/static.table", "where the table is written")
	python := flag.String("python", "/usr/lib/python3/dist-packages", "folders of Python packages, separated by colons")
	flag.Parse()
	if err := run(context.Background(), *out, strings.Split(*python, ":")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out string, python []string) error {
	examples, corpus, err := read(ctx, corpusList, python)
	if err != nil {
		return fmt.Errorf("read the sources: %w", err)
	}
	corpus.Seed = seed
	log.Printf("%d examples of %d sources, %v; %d functions withheld", len(examples), corpus.Sources,
		corpus.Examples, corpus.Withheld)
	pairs := make([]pair, len(examples))
	for i := range examples {
		pairs[i] = pair{table.Bag(examples[i].question), table.Bag(examples[i].text), examples[i].group}
	}
	v := choose(pairs, rowCount)
	t := learn(pairs, v).table(v)
	t.Trained = corpus
	file, err := t.Encode()
	if err != nil {
		return err
	}
	log.Printf("%s: %d words, %d bytes", out, len(v.words), len(file))
	return os.WriteFile(out, file, 0o644)
}

func learn(pairs []pair, v *vocabulary) *model {
	random := rand.New(rand.NewPCG(seed, seed))
	questions, texts := make([]bag, len(pairs)), make([]bag, len(pairs))
	for i := range pairs {
		questions[i], texts[i] = v.bag(pairs[i].question), v.bag(pairs[i].text)
	}
	m := newModel(len(v.words), dimensions, random)
	steps := len(pairs) / batchSize
	for epoch := range epochs {
		began, loss := time.Now(), 0.0
		order := shuffled(pairs, random)
		for step := range steps {
			q, t := make([]bag, batchSize), make([]bag, batchSize)
			for i, at := range order[step*batchSize:][:batchSize] {
				q[i], t[i] = questions[at], texts[at]
			}
			done := float32(epoch*steps+step) / float32(epochs*steps)
			loss += m.step(q, t, heat, firstRate*(1-0.9*done))
		}
		log.Printf("epoch %d of %d: loss %.3f in %s", epoch+1, epochs, loss/float64(max(1, steps)),
			time.Since(began).Round(time.Second))
	}
	return m
}

// shuffled gives the pairs in a random order in which a few of one folder are together.
func shuffled(pairs []pair, random *rand.Rand) []int {
	order := random.Perm(len(pairs))
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(pairs[a].group, pairs[b].group) })
	mixed := make([]int, 0, len(order))
	for _, g := range random.Perm((len(order) + together - 1) / together) {
		mixed = append(mixed, order[g*together:min((g+1)*together, len(order))]...)
	}
	return mixed
}

// table takes the words' inverse document frequencies into their rows.
func (m *model) table(v *vocabulary) *table.Table {
	rows := make([]float32, len(m.rows))
	for i, x := range m.rows {
		rows[i] = x * v.idf[i/m.dimensions]
	}
	return table.Quantise(v.words, m.dimensions, rows)
}
