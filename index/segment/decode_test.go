package segment

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/index/seal"
	"github.com/rondo-rl/rondo/storage"
)

// sampleSegment builds a segment of a few files.
func sampleSegment(t testing.TB, files, dimensions int) (*seal.Keys, *part) {
	t.Helper()
	keys := seal.New(seal.Key{1})
	random := rand.New(rand.NewPCG(1, 2))
	b := newBuilder(keys, dimensions)
	for i := range files {
		f := fileRows{path: fmt.Sprintf("folder%d/file%d.go", i%3, i)}
		random.Uint64()
		for k := range i % 5 {
			vector := make([]float32, dimensions)
			for n := range vector {
				vector[n] = float32(random.NormFloat64())
			}
			c := Chunk{Symbol: fmt.Sprintf("Name%d, Type.Method%d", k, i),
				Words: []string{"one", "two", "one", fmt.Sprintf("word%d", random.IntN(1000))}}
			id := [16]byte{byte(i), byte(k), 1}
			f.rows = append(f.rows, chunkRow{id: id, vector: quantise(vector), start: 1, end: 2, first: 3, last: 4,
				symbol: c.Symbol, length: 4, words: b.counted(&c)})
		}
		b.add(f)
	}
	p, err := b.build()
	if err != nil {
		t.Fatal(err)
	}
	return keys, p
}

// opened gives the pages of a section before they were sealed.
func opened(t testing.TB, keys *seal.Keys, p *part, s section) (all [][]byte) {
	t.Helper()
	for n := range p.pages(s) {
		packed, err := keys.Open(p.data[p.starts[s][n]:p.starts[s][n+1]], p.place(s, n))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, packed)
	}
	return all
}

func FuzzPage(f *testing.F) {
	keys, p := sampleSegment(f, 30, 8)
	for s := range sections {
		for _, packed := range opened(f, keys, p, s) {
			f.Add(byte(s), packed)
			if plainText, err := unpack(packed, maxPage); err == nil {
				f.Add(byte(s), append([]byte{plain}, plainText...))
			}
		}
	}
	f.Fuzz(func(t *testing.T, n byte, packed []byte) {
		s := section(n) % sections
		if p.pages(s) == 0 {
			return
		}
		decoded, err := p.decode(s, 0, packed)
		if err != nil {
			if !errors.Is(err, storage.ErrCorrupt) {
				t.Fatalf("%s: %v", s, err)
			}
			return
		}
		if g, ok := decoded.(*postingPage); ok {
			for _, word := range g.words {
				if _, err := g.list(nil, word, uint32(p.Rows)); err != nil && !errors.Is(err, storage.ErrCorrupt) {
					t.Fatal(err)
				}
			}
		}
	})
}

func FuzzManifest(f *testing.F) {
	_, p := sampleSegment(f, 30, 8)
	text, err := json.Marshal(manifest{Embedder: "x", Dimensions: 8, Segments: []entry{p.entry}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(pack(text, true))
	f.Add(pack(text, false))
	f.Add(pack(bytes.Replace(text, []byte(`"rows":`), []byte(`"rows":1`), 1), false))
	f.Fuzz(func(t *testing.T, packed []byte) {
		m, parts, err := decodeSealed(packed, [][32]byte{p.digest})
		if err != nil {
			if !errors.Is(err, storage.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		for _, q := range parts {
			q.pageOf("folder1/x")
			q.pagesOf(&[16]byte{5})
			q.pagesWith(1 << 60)
			q.dead(q.Files - 1)
			for s := range sections {
				if q.pages(s) > 0 {
					q.inPage(s, q.pages(s)-1)
				}
			}
		}
		if _, err := json.Marshal(m); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzClear(f *testing.F) {
	keys, p := sampleSegment(f, 3, 8)
	data, err := encodeManifest(keys, keys.Root([32]byte{1}), manifest{Embedder: "x", Dimensions: 8}, []*part{p, p})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, clear, err := decodeClear(data); err == nil &&
			(len(r.root) != 32 || len(clear) != clearHead+32*len(r.digests)) {
			t.Fatalf("%+v of %d bytes", r, len(clear))
		} else if err != nil && !errors.Is(err, storage.ErrCorrupt) {
			t.Fatal(err)
		}
		if _, _, _, err := decodeManifest(keys, data); err != nil && !errors.Is(err, storage.ErrCorrupt) {
			t.Fatal(err)
		}
	})
}

func FuzzPostings(f *testing.F) {
	f.Add([]byte{0, 1, 2, 200, 3, 9}, uint32(3))
	f.Fuzz(func(t *testing.T, data []byte, count uint32) {
		// What comes from anywhere.
		all, err := appendPostings(nil, data, min(count, 1<<20), 1000)
		if err == nil && (!slices.IsSortedFunc(all, func(a, b Posting) int { return int(a.Row) - int(b.Row) }) ||
			len(all) > 0 && all[len(all)-1].Row >= 1000) {
			t.Fatalf("%v", all)
		}
		// What was written comes back.
		var l list
		var want []Posting
		row := uint32(0)
		for i, b := range data {
			row += uint32(b)*uint32(b) + uint32(i%2) + 1
			want = append(want, Posting{row, uint32(b)%maxCount + 1})
			l.add(row, uint32(b)%maxCount+1)
		}
		if got, err := appendPostings(nil, l.data, l.count, row+1); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%v, %v, want %v", got, err, want)
		}
	})
}

// TestDot: the inner product is that of a plain loop, for all lengths and the largest numbers.
func TestDot(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{1, 3, 7, 8, 9, 48, 100, 192, MaxDimensions} {
		steps, row, want := make([]int16, n), make([]byte, n), int64(0)
		for i := range n {
			steps[i], row[i] = querySteps, 127
			if n < MaxDimensions {
				steps[i], row[i] = int16(random.IntN(2*querySteps+1)-querySteps), byte(random.Uint32())
			}
			want += int64(steps[i]) * int64(int8(row[i]))
		}
		if got := dot(steps, row); int64(got) != want {
			t.Errorf("%d: %d, want %d", n, got, want)
		}
	}
}

// TestExchangedPages: a page in the place of another one of the same section is seen.
func TestExchangedPages(t *testing.T) {
	keys, p := sampleSegment(t, 40, 4096)
	base := New(nil, keys, nil)
	base.parts, base.manifest.Dimensions = []*part{p}, 4096
	vector := make([]float32, 4096)
	vector[0] = 1
	if _, err := base.Read(t.Context(), Request{Vector: vector}); err != nil {
		t.Fatal(err)
	}
	at := p.starts[vectors]
	if len(at) < 4 || at[1]-at[0] != at[2]-at[1] {
		t.Fatalf("pages at %v", at)
	}
	p.data = slices.Concat(p.data[:at[0]], p.data[at[1]:at[2]], p.data[at[0]:at[1]], p.data[at[2]:])
	base.cache = memoryOnly()
	if _, err := base.Read(t.Context(), Request{Vector: vector}); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("exchanged pages: %v", err)
	}
}

// TestLongLists: a word that stands in so many rows that its list is cut is found in all of them.
func TestLongLists(t *testing.T) {
	keys := seal.New(seal.Key{1})
	b := newBuilder(keys, 2)
	const n = 45_000
	for i := range 30 {
		f := fileRows{path: fmt.Sprintf("%02d", i)}
		for k := range n / 30 {
			words := []string{"everywhere"}
			if k%7 == 0 {
				words = append(words, "often")
			}
			c := Chunk{Words: words}
			f.rows = append(f.rows, chunkRow{id: [16]byte{byte(i), byte(k), byte(k >> 8), 1},
				vector: quantise([]float32{1, 0}), words: b.counted(&c), length: uint32(len(words))})
		}
		b.add(f)
	}
	p, err := b.build()
	if err != nil {
		t.Fatal(err)
	}
	base := New(nil, keys, nil)
	base.parts, base.manifest.Dimensions = []*part{p}, 2
	v, err := base.Read(t.Context(), Request{Words: []string{"everywhere", "often", "nowhere"}})
	if err != nil {
		t.Fatal(err)
	}
	if pages := p.pages(postings); pages < 3 {
		t.Errorf("%d pages of postings", pages)
	}
	for i, want := range []int{n, 30 * ((n/30 + 6) / 7), 0} {
		v.Postings(i, func(_, _ int, list []Posting) {
			if len(list) != want {
				t.Errorf("word %d stands in %d rows, want %d", i, len(list), want)
			}
		})
	}
}

// TestFullSegments: a change larger than a segment becomes several, which are stored on the way.
func TestFullSegments(t *testing.T) {
	keys := seal.New(seal.Key{1})
	w, err := New(nil, keys, nil).Begin("x", 2)
	if err != nil {
		t.Fatal(err)
	}
	w.full, w.overlay = 10, true
	for i := range 25 {
		chunks := []Chunk{{ID: [16]byte{byte(i % 3), 1}}, {ID: [16]byte{byte(i), 2}, Vector: []float32{1, 0}}}
		if i < 3 {
			chunks[0].Vector = []float32{0, 1}
		}
		if err := w.Put(t.Context(), File{Path: fmt.Sprint(i), Chunks: chunks}); err != nil {
			t.Fatal(err)
		}
	}
	b, err := w.Commit(t.Context(), Update{Root: keys.Root([32]byte{1})})
	if err != nil {
		t.Fatal(err)
	}
	if c := b.Counts(); c.Segments != 5 || c.Files != 25 || c.Chunks != 50 {
		t.Errorf("%+v", c)
	}
	if _, err := w.Commit(t.Context(), Update{}); err == nil {
		t.Error("it was committed twice")
	}
}

// TestMergesFollowTheChange: over many small updates a row is written again a number of times that
// follows the logarithm of their number, and there are never many segments.
func TestMergesFollowTheChange(t *testing.T) {
	parts := []*part{{entry: entry{Files: 1, Rows: 100_000}}}
	written, updates := 0, 2000
	for range updates {
		parts = append(parts, &part{entry: entry{Files: 1, Rows: 10}})
		for _, group := range mergers(parts, fullSegment) {
			sum := 0
			for _, p := range group {
				sum += p.Rows
			}
			written += sum
			parts = append(slices.DeleteFunc(parts, func(p *part) bool { return slices.Contains(group, p) }),
				&part{entry: entry{Files: 1, Rows: sum}})
		}
		if len(parts) > maxSmall+1 {
			t.Fatalf("%d segments", len(parts))
		}
	}
	if times := float64(written) / float64(10*updates); times > 15 {
		t.Errorf("each row was written again %.1f times", times)
	}
}

// TestMergeOfTheDead: a segment of which more than a third is dead is written
// again; one with less is not.
func TestMergeOfTheDead(t *testing.T) {
	few := &part{entry: entry{Files: 100, Rows: 1000, DeadFiles: 33, DeadRows: 330}}
	many := &part{entry: entry{Files: 100, Rows: 1000, DeadFiles: 34, DeadRows: 340}}
	if groups := mergers([]*part{few, many}, fullSegment); len(groups) != 1 ||
		len(groups[0]) != 1 || groups[0][0] != many {
		t.Errorf("%v", groups)
	}
}
