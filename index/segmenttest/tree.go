// Package segmenttest makes trees of files with chunks for tests: what an updater would make of
// real ones, without reading any.
package segmenttest

import (
	"crypto/sha256"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/index/seal"
	"github.com/rondo-rl/rondo/index/segment"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
)

// Embedder and Dimensions are those of the vectors that are made here.
const (
	Embedder   = "segmenttest-1"
	Dimensions = 48
)

// Key is a key for tests.
func Key(b byte) *seal.Keys { return seal.New(seal.Key{b}) }

// Load gives a repository's present index under Key(1).
func Load(t testing.TB, s storage.Store, repo string) *segment.Base {
	t.Helper()
	b, err := segment.Load(t.Context(), s, Key(1), repo, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Commit makes a change, which must succeed.
func Commit(t testing.TB, b *segment.Base, c segment.Change) *segment.Base {
	t.Helper()
	next, err := b.Commit(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// Open opens an empty store.
func Open(t testing.TB) storage.Store {
	t.Helper()
	s, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// Tree is a working tree: the chunks of each file, as texts.
type Tree map[string][]string

// Root names the tree.
func (t Tree) Root(keys *seal.Keys) string {
	h := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(t)) {
		fmt.Fprintf(h, "%q %q\n", path, t[path])
	}
	return keys.Root([32]byte(h.Sum(nil)))
}

// File is a file of the tree as it is put into an index.
func (t Tree) File(keys *seal.Keys, path string) segment.File {
	f := segment.File{Path: path, Content: sha256.Sum256([]byte(fmt.Sprintf("%q", t[path])))}
	at, line := 0, 1
	for _, text := range t[path] {
		c := segment.Chunk{ID: keys.Chunk([]byte(text), Embedder), Start: at, End: at + len(text), FirstLine: line,
			LastLine: line + 3, Vector: Vector(text)}
		for word := range strings.FieldsSeq(text + " " + strings.ReplaceAll(path, "/", " ")) {
			if name, ok := strings.CutPrefix(word, "func:"); ok {
				c.Symbol = name
				word = name
			}
			c.Words = append(c.Words, strings.ToLower(word))
		}
		f.Chunks = append(f.Chunks, c)
		at, line = at+len(text)+1, line+4
	}
	return f
}

// Change leads from an older tree, nil for none, to this one.
func (t Tree) Change(keys *seal.Keys, older Tree) segment.Change {
	c := segment.Change{Embedder: Embedder, Dimensions: Dimensions,
		Update: segment.Update{Root: t.Root(keys), Time: time.Unix(1_700_000_000, 0).UTC()}}
	for _, path := range slices.Sorted(maps.Keys(older)) {
		if _, there := t[path]; !there {
			c.Removed = append(c.Removed, path)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(t)) {
		if before, there := older[path]; !there || !slices.Equal(before, t[path]) {
			c.Put = append(c.Put, t.File(keys, path))
		}
	}
	return c
}

// Vector is a text's vector: alike for texts that share words.
func Vector(text string) []float32 {
	v := make([]float32, Dimensions)
	for word := range strings.FieldsSeq(text) {
		h := fnv.New64a()
		h.Write([]byte(word))
		random := rand.New(rand.NewPCG(h.Sum64(), 1))
		for i := range v {
			v[i] += float32(random.NormFloat64())
		}
	}
	return Unit(v)
}

// Unit scales a vector to length 1, unless it is zero.
func Unit(v []float32) []float32 {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if sum > 0 {
		for i := range v {
			v[i] = float32(float64(v[i]) / math.Sqrt(sum))
		}
	}
	return v
}

var folders = []string{"", "cmd", "cmd/tool", "internal/store", "internal/store/testdata", "vendor/x/y", "web/src",
	"web/src/generated", "docs"}

// Text is a chunk's text of common and rare words.
func Text(random *rand.Rand) string {
	var words []string
	if random.IntN(2) == 0 {
		words = append(words, fmt.Sprintf("func:Name%d", random.IntN(500)))
	}
	for range 3 + random.IntN(20) {
		words = append(words, fmt.Sprintf("w%d", int(math.Exp(random.Float64()*math.Log(2000)))))
	}
	return strings.Join(words, " ")
}

// Path is a file's path.
func Path(random *rand.Rand) string {
	folder := folders[random.IntN(len(folders))]
	name := fmt.Sprintf("f%d.go", random.IntN(100_000))
	if random.IntN(6) == 0 {
		name = fmt.Sprintf("f%d_test.go", random.IntN(100_000))
	}
	return strings.TrimPrefix(folder+"/"+name, "/")
}

// Grow adds files to the tree.
func (t Tree) Grow(random *rand.Rand, n int) Tree {
	for range n {
		var chunks []string
		for range random.IntN(8) {
			chunks = append(chunks, Text(random))
		}
		t[Path(random)] = chunks
	}
	return t
}

// Edit gives another tree, with some files edited, moved, copied, removed and added.
func (t Tree) Edit(random *rand.Rand, edits int) Tree {
	next := maps.Clone(t)
	for range edits {
		paths := slices.Sorted(maps.Keys(next))
		if len(paths) == 0 {
			next.Grow(random, 1)
			continue
		}
		path := paths[random.IntN(len(paths))]
		switch random.IntN(6) {
		case 0:
			next.Grow(random, 1)
		case 1:
			delete(next, path)
		case 2: // moved
			to := Path(random)
			next[to] = next[path]
			if to != path {
				delete(next, path)
			}
		case 3:
			next[Path(random)] = next[path] // copied
		default:
			chunks := slices.Clone(next[path])
			switch at := random.IntN(len(chunks) + 1); {
			case at == len(chunks) || random.IntN(2) == 0:
				chunks = slices.Insert(chunks, at, Text(random))
			default:
				chunks[at] = Text(random)
			}
			next[path] = chunks
		}
	}
	return next
}
