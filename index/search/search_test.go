package search_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/index/search"
	"github.com/rondo-rl/rondo/index/segment"
	"github.com/rondo-rl/rondo/index/segmenttest"
)

var open, load, commit = segmenttest.Open, segmenttest.Load, segmenttest.Commit

// query makes a query of a text as an index's user would.
func query(text string) search.Query {
	return search.Query{Text: text, Words: strings.Fields(strings.ToLower(text)),
		Vector: segmenttest.Vector(text), Limit: 20}
}

func queries(random *rand.Rand, tree segmenttest.Tree) (all []search.Query) {
	for range 6 {
		all = append(all, query(segmenttest.Text(random)))
	}
	all = append(all, query("Name17"), query("where is Name3() called"), query("w1"), query("nowhere"), query(""))
	for _, folder := range []string{"cmd", "cmd/", "web/src/generated", "nothing/here"} {
		q := query(segmenttest.Text(random))
		q.Directory = folder
		all = append(all, q)
	}
	if len(tree) > 0 {
		q := query("w1 w2 w3")
		q.Directory = slices.Min(slices.Collect(maps.Keys(tree)))
		all = append(all, q)
	}
	words := query("w1 w2 w30")
	words.Vector = nil
	return append(all, words)
}

// answers are all that an index says to queries, and its counts.
func answers(t testing.TB, b *segment.Base, all []search.Query) string {
	t.Helper()
	var out strings.Builder
	c := b.Counts()
	fmt.Fprintf(&out, "%d files, %d chunks, %d words\n", c.Files, c.Chunks, c.Words)
	for _, q := range all {
		hits, err := search.Run(t.Context(), b, q)
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		fmt.Fprintf(&out, "%q in %q\n", q.Text, q.Directory)
		for _, h := range hits {
			fmt.Fprintf(&out, "\t%x %+v\n", h.Score, h)
		}
	}
	for f, err := range b.Files(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%+v\n", f)
	}
	return out.String()
}

// TestIncrementalEqualsFresh: after any edits, committed one after another or laid over, the
// answers are those of an index that is made at once, bit for bit.
func TestIncrementalEqualsFresh(t *testing.T) {
	for seed := range uint64(3) {
		random := rand.New(rand.NewPCG(seed, 7))
		store := open(t)
		keys := segmenttest.Key(1)
		tree := segmenttest.Tree{}.Grow(random, 5+random.IntN(60))
		b := commit(t, load(t, store, "repo"), tree.Change(keys, nil))
		merged := false
		for step := range 25 {
			next := tree.Edit(random, 1+random.IntN(12))
			change := next.Change(keys, tree)
			reuse(t, b, &change)
			overlay, err := b.Overlay(t.Context(), change)
			if err != nil {
				t.Fatal(err)
			}
			before := b.Counts().Segments
			b = commit(t, b, change)
			merged = merged || b.Counts().Segments < before
			tree = next
			if step%6 != 5 {
				continue
			}
			all := queries(random, tree)
			fresh := commit(t, load(t, store, fmt.Sprintf("fresh %d", step)), tree.Change(keys, nil))
			want := answers(t, fresh, all)
			again := load(t, store, "repo")
			byRoot, err := segment.LoadRoot(t.Context(), store, keys, tree.Root(keys), nil)
			if err != nil {
				t.Fatal(err)
			}
			for name, b := range map[string]*segment.Base{"committed": b, "loaded": again,
				"overlay": overlay, "by root": byRoot} {
				if got := answers(t, b, all); got != want {
					t.Fatalf("seed %d, step %d, %s: %s", seed, step, name, difference(got, want))
				}
			}
			if !strings.Contains(want, "VectorRank:1 ") && !strings.Contains(want, "VectorRank:1}") {
				t.Fatalf("no answer has a first vector:\n%.2000s", want)
			}
		}
		if c := b.Counts(); !merged || c.Segments > 10 {
			t.Errorf("seed %d: %d segments, merged: %t", seed, c.Segments, merged)
		}
	}
}

// reuse takes the vectors away that the index has.
func reuse(t testing.TB, b *segment.Base, c *segment.Change) (reused int) {
	t.Helper()
	var ids [][16]byte
	for _, f := range c.Put {
		for _, k := range f.Chunks {
			ids = append(ids, k.ID)
		}
	}
	has, err := b.Has(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range c.Put {
		for i := range f.Chunks {
			if has[n] {
				f.Chunks[i].Vector = nil
				reused++
			}
			n++
		}
	}
	return reused
}

func difference(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d:\ngot  %s\nwant %s", i, strings.Join(a[max(i-2, 0):i+1], "\n     "),
				strings.Join(b[max(i-2, 0):i+1], "\n     "))
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(a), len(b))
}
