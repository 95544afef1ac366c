package index

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/index/seal"
	"github.com/rondo-rl/rondo/index/search"
	"github.com/rondo-rl/rondo/index/segment"
	"github.com/rondo-rl/rondo/storage/dir"
)

// Size is how soon an index of so many chunks answers, and how near it comes to an exact search
// for the nearest vectors.
type Size struct {
	Chunks  int     `json:"chunks"`
	WarmP50 float64 `json:"warm_p50_ms"`
	WarmP99 float64 `json:"warm_p99_ms"`
	ColdP50 float64 `json:"cold_p50_ms"` // with nothing in memory, and no cache on disk
	ColdP99 float64 `json:"cold_p99_ms"`
	WarmCPU float64 `json:"warm_cpu_ms"` // of all processors together, the median
	ColdCPU float64 `json:"cold_cpu_ms"`
	// Recall10 is which share of the ten nearest chunks is among the first ten.
	Recall10      float64 `json:"recall10"`
	BytesPerChunk float64 `json:"bytes_per_chunk"`
}

const (
	dimensions = 192
	perFile    = 10
	perSubject = 50 // chunks around one direction
	vocabulary = 50_000
	wordsEach  = 40
)

// cloud is made-up chunks, each of which follows from its number.
type cloud struct {
	chunks   int
	subjects []float32
}

func newCloud(chunks int) *cloud {
	c := &cloud{chunks: chunks, subjects: make([]float32, (chunks/perSubject+1)*dimensions)}
	random := rand.New(rand.NewPCG(uint64(chunks), 1))
	for i := range c.subjects {
		c.subjects[i] = float32(random.NormFloat64())
	}
	return c
}

// vector of a chunk, or, for a question, one near it.
func (c *cloud) vector(chunk int, question bool) []float32 {
	random := rand.New(rand.NewPCG(uint64(chunk), 2))
	subject := c.subjects[random.IntN(len(c.subjects)/dimensions)*dimensions:][:dimensions]
	v, square := make([]float32, dimensions), 0.0
	for i := range v {
		v[i] = subject[i] + float32(0.7*random.NormFloat64())
	}
	for i := range v {
		if question {
			v[i] += float32(0.7 * random.NormFloat64())
		}
		square += float64(v[i]) * float64(v[i])
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(square))
	}
	return v
}

// words of a chunk: common ones often, as in code.
func (c *cloud) words(chunk int) []string {
	random := rand.New(rand.NewPCG(uint64(chunk), 3))
	list := make([]string, wordsEach)
	for i := range list {
		list[i] = fmt.Sprintf("w%d", int(math.Pow(vocabulary, random.Float64())))
	}
	return list
}

func (c *cloud) write(ctx context.Context, base *segment.Base, show func(string)) (*segment.Base, error) {
	w, err := base.Begin("bench", dimensions)
	if err != nil {
		return nil, err
	}
	for first := 0; first < c.chunks; first += perFile {
		f := segment.File{Path: fmt.Sprintf("d%d/f%d.go", first/1000, first)}
		binary.LittleEndian.PutUint64(f.Content[:], uint64(first))
		for i := first; i < min(first+perFile, c.chunks); i++ {
			var id [16]byte
			binary.LittleEndian.PutUint64(id[:], uint64(i)+1)
			f.Chunks = append(f.Chunks, segment.Chunk{ID: id, Start: i, End: i + 1, FirstLine: 1, LastLine: 1,
				Words: c.words(i), Vector: c.vector(i, false)})
		}
		if err := w.Put(ctx, f); err != nil {
			return nil, err
		}
		if first%1000 == 0 {
			show(fmt.Sprintf("%d chunks: %d written", c.chunks, first))
		}
	}
	return w.Commit(ctx, segment.Update{Root: base.Keys().Root(sha256.Sum256(nil)), Time: time.Now()})
}

// nearest are the ten nearest chunks of each vector, exactly.
func (c *cloud) nearest(vectors [][]float32, show func(string)) [][]int {
	type near struct {
		chunk int
		dot   float32
	}
	best := make([][]near, len(vectors))
	for i := range c.chunks {
		v := c.vector(i, false)
		for q := range vectors {
			sum := float32(0)
			for j, x := range vectors[q] {
				sum += x * v[j]
			}
			if list := best[q]; len(list) < 10 || sum > list[9].dot {
				at, _ := slices.BinarySearchFunc(list, sum,
					func(n near, sum float32) int { return cmp.Compare(sum, n.dot) })
				list = slices.Insert(list, at, near{i, sum})
				best[q] = list[:min(10, len(list))]
			}
		}
		if i%1000 == 0 {
			show(fmt.Sprintf("%d chunks: %d compared exactly", c.chunks, i))
		}
	}
	out := make([][]int, len(vectors))
	for q := range best {
		for _, n := range best[q] {
			out[q] = append(out[q], n.chunk)
		}
	}
	return out
}

func (r *Result) size(ctx context.Context, o Options, folder string, chunks int, show func(string)) error {
	s := Size{Chunks: chunks}
	place := filepath.Join(folder, fmt.Sprint("size-", chunks))
	store, err := dir.Open(place)
	if err != nil {
		return err
	}
	defer os.RemoveAll(place)
	defer store.Close()
	keys, c := seal.New(seal.Key{2}), newCloud(chunks)
	load := func() (*segment.Base, error) { return segment.Load(ctx, store, keys, "bench", nil) }
	base, err := load()
	if err != nil {
		return err
	}
	if base, err = c.write(ctx, base, show); err != nil {
		return err
	}
	size, err := bytesBelow(place)
	if err != nil {
		return err
	}
	s.BytesPerChunk = float64(size) / float64(chunks)
	random := rand.New(rand.NewPCG(4, 4))
	queries, vectors := make([]search.Query, o.Queries), make([][]float32, o.Queries)
	for i := range queries {
		about := random.IntN(chunks)
		vectors[i] = c.vector(about, true)
		queries[i] = search.Query{Words: c.words(about)[:6], Vector: vectors[i], Limit: 10}
	}
	exact := c.nearest(vectors, show)
	found := 0
	for i, v := range vectors { // which also warms what the queries below need
		hits, err := search.Run(ctx, base, search.Query{Vector: v, Limit: 10})
		if err != nil {
			return err
		}
		for _, h := range hits {
			if slices.Contains(exact[i], h.Start) {
				found++
			}
		}
	}
	s.Recall10 = float64(found) / float64(10*len(vectors))
	var warm, cold, warmCPU, coldCPU []float64
	for i, q := range queries {
		show(fmt.Sprintf("%d chunks: %d of %d queries", chunks, i, len(queries)))
		if _, err := search.Run(ctx, base, q); err != nil {
			return err
		}
		one, err := measure(func() error { _, err := search.Run(ctx, base, q); return err })
		if err != nil {
			return err
		}
		warm, warmCPU = append(warm, one.passed), append(warmCPU, one.processor)
		one, err = measure(func() error {
			fresh, err := load()
			if err == nil {
				_, err = search.Run(ctx, fresh, q)
			}
			return err
		})
		if err != nil {
			return err
		}
		cold, coldCPU = append(cold, one.passed), append(coldCPU, one.processor)
	}
	s.WarmCPU, s.ColdCPU = percentile(warmCPU, 0.5), percentile(coldCPU, 0.5)
	s.WarmP50, s.WarmP99, s.ColdP50, s.ColdP99 = percentile(warm, 0.5), percentile(warm, 0.99),
		percentile(cold, 0.5), percentile(cold, 0.99)
	r.Sizes = append(r.Sizes, s)
	return nil
}
