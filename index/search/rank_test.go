package search_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/index/search"
	"github.com/rondo-rl/rondo/index/segment"
	"github.com/rondo-rl/rondo/index/segmenttest"
)

// found gives the paths of an answer.
func found(t *testing.T, b *segment.Base, q search.Query) (paths []string) {
	t.Helper()
	hits, err := search.Run(t.Context(), b, q)
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range hits {
		paths = append(paths, h.Path)
		if i > 0 && h.Score > hits[i-1].Score {
			t.Errorf("hit %d is better than the one before: %+v", i, hits)
		}
	}
	return paths
}

func index(t *testing.T, tree segmenttest.Tree) *segment.Base {
	t.Helper()
	return commit(t, load(t, open(t), "repo"), tree.Change(segmenttest.Key(1), nil))
}

func TestRanking(t *testing.T) {
	b := index(t, segmenttest.Tree{
		"store/open.go":                  {"func:OpenStore open the store of objects", "func:Store.Close close it"},
		"store/open_test.go":             {"func:TestOpenStore open the store of objects"},
		"vendor/other/open.go":           {"func:Other open the store of objects"},
		"web/generated/open.js":          {"func:Gen open the store of objects"},
		"uses/one.go":                    {"func:One calls openstore openstore openstore openstore with the store of objects open open open"},
		"uses/two.go":                    {"func:Two calls openstore openstore openstore openstore openstore store objects"},
		"unlike/all.go":                  {"func:Unlike nothing in common"},
		"store/deeper/x.go":              {"func:Deep the store of something"},
		"storehouse/x.go":                {"func:House the store of something"},
		"store-room/x.go":                {"func:Room the store of something"},
		"docs/guide.md":                  {"how to close it and go home"},
		"services/reader.go":             {"func:Reader.ReadAll read", "func:Reader.ReadOne, Reader.Peek read"},
		"services/reader_helpers_gen.go": {"read readall readall readall"},
	})
	for name, want := range map[string]struct {
		query search.Query
		first string // of the answer
		order []string
	}{
		"code before tests, and these before what is copied or generated": {query("open the store of objects"),
			"store/open.go",
			[]string{"store/open.go", "store/open_test.go", "vendor/other/open.go"}},
		"tests where tests are asked for": {query("test open the store of objects"), "",
			[]string{"store/open_test.go", "vendor/other/open.go"}},
		"the declaration before its uses":        {query("OpenStore"), "store/open.go", nil},
		"a qualified name":                       {query("where is Store.Close used"), "store/open.go", nil},
		"a called name":                          {query("what does close() do"), "store/open.go", nil},
		"the last part of a qualified name":      {query("ReadAll"), "services/reader.go", nil},
		"one of several declarations of a chunk": {query("Reader.Peek"), "services/reader.go", nil},
		"by words alone": {search.Query{Text: "unlike", Words: []string{"common"}},
			"unlike/all.go", nil},
		"by the vector alone": {search.Query{Vector: segmenttest.Vector(
			"how to close it and go home")}, "docs/guide.md", nil},
	} {
		t.Run(name, func(t *testing.T) {
			paths := found(t, b, want.query)
			if want.first != "" && (len(paths) == 0 || paths[0] != want.first) {
				t.Errorf("%s: %v, want %s first", name, paths, want.first)
			}
			last := -1
			for _, path := range want.order {
				if at := slices.Index(paths, path); at <= last {
					t.Errorf("%s: %v, want %v in this order", name, paths, want.order)
				} else {
					last = at
				}
			}
		})
	}
}

func TestDirectory(t *testing.T) {
	b := index(t, segmenttest.Tree{
		"store/a.go": {"w1"}, "store/deep/b.go": {"w1"}, "store-room/c.go": {"w1"}, "store0/d.go": {"w1"},
		"store": {"w1"}, "d.go": {"w1"}, "other/store/e.go": {"w1"},
	})
	for directory, want := range map[string]string{
		"":       "d.go other/store/e.go store store-room/c.go store/a.go store/deep/b.go store0/d.go",
		"store":  "store store/a.go store/deep/b.go",
		"store/": "store store/a.go store/deep/b.go", "./store": "store store/a.go store/deep/b.go",
		"/store//deep/": "store/deep/b.go",
		"d.go":          "d.go", "nothing": "", "a/../d.go": "d.go",
		".": "d.go other/store/e.go store store-room/c.go store/a.go store/deep/b.go store0/d.go",
	} {
		t.Run(directory, func(t *testing.T) {
			q := query("w1")
			q.Directory = directory
			paths := found(t, b, q)
			slices.Sort(paths)
			if got := strings.Join(paths, " "); got != want {
				t.Errorf("%q: %s, want %s", directory, got, want)
			}
		})
	}
}

func TestRefusedQueries(t *testing.T) {
	b := index(t, segmenttest.Tree{"a.go": {"w1 w2"}})
	for name, change := range map[string]func(*search.Query){
		"a negative limit":       func(q *search.Query) { q.Limit = -1 },
		"a large limit":          func(q *search.Query) { q.Limit = search.MaxLimit + 1 },
		"a folder outside":       func(q *search.Query) { q.Directory = "../x" },
		"a long folder":          func(q *search.Query) { q.Directory = strings.Repeat("x", segment.MaxPath+1) },
		"a vector of other size": func(q *search.Query) { q.Vector = []float32{1} },
		"a vector of no numbers": func(q *search.Query) {
			q.Vector = slices.Repeat([]float32{float32(math.NaN())}, segmenttest.Dimensions)
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := query("w1")
			change(&q)
			if hits, err := search.Run(t.Context(), b, q); err == nil {
				t.Errorf("%s: %+v", name, hits)
			}
		})
	}
	many := query(strings.Repeat("w1 other ", 10_000))
	if paths := found(t, b, many); len(paths) != 1 {
		t.Errorf("a long question: %v", paths)
	}
	zero := query("w1")
	zero.Vector = make([]float32, segmenttest.Dimensions)
	if paths := found(t, b, zero); len(paths) != 1 {
		t.Errorf("a vector that knows nothing: %v", paths)
	}
	if paths := found(t, load(t, open(t), "empty"), query("w1")); len(paths) != 0 {
		t.Errorf("an empty index: %v", paths)
	}
}

// TestBM25: the order by words is that of the formula, worked out for every
// chunk from the tree itself.
func TestBM25(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	tree := segmenttest.Tree{}.Grow(random, 60)
	b := index(t, tree)
	type chunk struct {
		name  string
		words []string
	}
	var all []chunk
	length := 0
	for _, path := range slices.Sorted(maps.Keys(tree)) {
		for _, c := range tree.File(segmenttest.Key(1), path).Chunks {
			all = append(all, chunk{fmt.Sprintf("%s:%d", path, c.Start), c.Words})
			length += len(c.Words)
		}
	}
	count := func(words []string, w string) (n float64) {
		for _, x := range words {
			if x == w {
				n++
			}
		}
		return n
	}
	for range 20 {
		q := search.Query{Words: []string{"w1", fmt.Sprintf("w%d", random.IntN(30)), "cmd"}, Limit: search.MaxLimit}
		scores := map[string]float64{}
		for _, w := range slices.Compact(slices.Sorted(slices.Values(q.Words))) {
			df := 0.0
			for _, c := range all {
				df += min(count(c.words, w), 1)
			}
			for _, c := range all {
				if tf := count(c.words, w); tf > 0 {
					k := 1.2 * (1 - 0.75 + 0.75*float64(len(c.words))/(float64(length)/float64(len(all))))
					scores[c.name] += math.Log(1+(float64(len(all))-df+0.5)/(df+0.5)) * tf * 2.2 / (tf + k)
				}
			}
		}
		hits, err := search.Run(t.Context(), b, q)
		if err != nil {
			t.Fatal(err)
		}
		if len(hits) != min(len(scores), search.MaxLimit) {
			t.Errorf("%v: %d hits of %d chunks", q.Words, len(hits), len(scores))
		}
		slices.SortFunc(hits, func(a, b search.Hit) int { return cmp.Compare(a.WordRank, b.WordRank) })
		for i, h := range hits[:min(len(hits), 30)] {
			if i == 0 {
				continue
			}
			before, is := scores[fmt.Sprintf("%s:%d", hits[i-1].Path, hits[i-1].Start)],
				scores[fmt.Sprintf("%s:%d", h.Path, h.Start)]
			if is > before+1e-9 || is == 0 {
				t.Fatalf("%v: rank %d has %g, and the one before %g", q.Words, h.WordRank, is, before)
			}
		}
	}
}
