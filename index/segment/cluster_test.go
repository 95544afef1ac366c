package segment_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/index/search"
	"github.com/rondo-rl/rondo/index/segment"
	"github.com/rondo-rl/rondo/index/segmenttest"
	"github.com/rondo-rl/rondo/storage"
)

// topics are directions around which vectors lie, as those of code do around its subjects.
type topics struct {
	random  *rand.Rand
	centers [][]float32
	noise   float64 // its length, beside 1 of the topic
}

func newTopics(random *rand.Rand, n, dimensions int) *topics {
	t := &topics{random: random, noise: 0.8}
	for range n {
		t.centers = append(t.centers, t.near(make([]float32, dimensions), 1))
	}
	return t
}

// near gives a vector that lies around another one.
func (t *topics) near(v []float32, noise float64) []float32 {
	out := make([]float32, len(v))
	for i := range v {
		out[i] = v[i] + float32(noise*t.random.NormFloat64())
	}
	return segmenttest.Unit(out)
}

// one gives a vector around one of the topics; half of its length is noise.
func (t *topics) one() []float32 {
	c := t.centers[t.random.IntN(len(t.centers))]
	return t.near(c, t.noise/sqrt(len(c)))
}

func sqrt(n int) float64 {
	x := float64(n)
	for range 40 {
		x = (x + float64(n)/x) / 2
	}
	return x
}

// put writes files of such vectors and commits them, in changes of so many rows.
func (t *topics) put(tb testing.TB, b *segment.Base, rows, atOnce int) *segment.Base {
	tb.Helper()
	for n := 0; n < rows; n += atOnce {
		w, err := b.Begin("topics", len(t.centers[0]))
		if err != nil {
			tb.Fatal(err)
		}
		for at := n; at < min(n+atOnce, rows); at += 10 {
			f := segment.File{Path: fmt.Sprintf("folder%d/f%06d.go", at%7, at)}
			for i := range 10 {
				c := segment.Chunk{Start: i, End: i + 1, FirstLine: i, LastLine: i,
					Words: []string{fmt.Sprintf("w%d", t.random.IntN(5000)), "common"}, Vector: t.one()}
				binary.BigEndian.PutUint64(c.ID[:], t.random.Uint64())
				f.Chunks = append(f.Chunks, c)
			}
			if err := w.Put(tb.Context(), f); err != nil {
				tb.Fatal(err)
			}
		}
		var digest [32]byte
		binary.BigEndian.PutUint64(digest[:], uint64(n))
		if b, err = w.Commit(tb.Context(), segment.Update{Root: keys.Root(sha256.Sum256(digest[:]))}); err != nil {
			tb.Fatal(err)
		}
	}
	return b
}

// nearest gives the best rows by vectors, located, as text.
func nearest(tb testing.TB, b *segment.Base, v []float32, directory string, n int) (all []string) {
	tb.Helper()
	view, err := b.Read(tb.Context(), segment.Request{Vector: v, Directory: directory})
	if err != nil {
		tb.Fatal(err)
	}
	near := view.Nearest(256)
	if _, err := b.Locate(tb.Context(), view, nil, near); err != nil {
		tb.Fatal(err)
	}
	var rows []segment.Row
	for _, r := range near[:min(len(near), n)] {
		rows = append(rows, r.Row)
	}
	where, err := b.Locate(tb.Context(), view, rows, nil)
	if err != nil {
		tb.Fatal(err)
	}
	for i, l := range where {
		all = append(all, fmt.Sprintf("%s:%d %x", l.Path, l.FirstLine, near[i].Score))
	}
	return all
}

func recall(tb testing.TB, approximate, exact *segment.Base, queries [][]float32, directory string) float64 {
	tb.Helper()
	found, wanted := 0, 0
	for _, q := range queries {
		is := map[string]bool{}
		for _, hit := range nearest(tb, approximate, q, directory, 10) {
			is[hit] = true
		}
		for _, hit := range nearest(tb, exact, q, directory, 10) {
			wanted++
			if is[hit] {
				found++
			}
		}
	}
	return float64(found) / float64(wanted)
}

// TestRecall: through the clusters nearly all is found that an exact search finds, from segments of
// all sizes, also where files are dead, and below a directory.
func TestRecall(t *testing.T) {
	store := open(t)
	random := rand.New(rand.NewPCG(1, 2))
	topics := newTopics(random, 150, 192)
	topics.noise = 1.6
	b := topics.put(t, load(t, store, "repo").Cluster(3_000), 6_000, 3_000)
	b = topics.put(t, b, 500, 500) // replaces some of the first ones
	if c := b.Counts(); b.Clusters() < 60 || c.Segments != 3 || c.Dead == 0 || c.Chunks != 6_000 {
		t.Fatalf("%d clusters, %+v", b.Clusters(), c)
	}
	exact := load(t, store, "repo")
	var queries [][]float32
	for range 25 {
		queries = append(queries, topics.one())
	}
	again := load(t, store, "repo").Cluster(3_000)
	if r := recall(t, again, exact, queries, ""); r < 0.95 {
		t.Errorf("recall@10 is %.3f", r)
	}
	if r := recall(t, again, exact, queries[:15], "folder3"); r < 0.95 {
		t.Errorf("recall@10 below a directory is %.3f", r)
	}
	for b, want := range map[*segment.Base]bool{again: true, exact: false} {
		v, err := b.Read(t.Context(), segment.Request{Vector: queries[0]})
		if err != nil {
			t.Fatal(err)
		}
		if near := v.Nearest(1); near[0].Estimate != want {
			t.Errorf("the first row is an estimate: %t", near[0].Estimate)
		}
	}
}

// slow is a store each of whose reads takes a round trip.
type slow struct {
	storage.Store
}

const trip = 100 * time.Millisecond

func (s slow) GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	time.Sleep(trip)
	return s.Store.GetRange(ctx, key, offset, length)
}

func (s slow) Load(ctx context.Context, key string) ([]byte, string, error) {
	time.Sleep(trip)
	return s.Store.Load(ctx, key)
}

func (s slow) Get(context.Context, string) ([]byte, error) { panic("whole objects are not read") }

func (s slow) Stat(context.Context, string) (storage.Info, error) { panic("nothing is looked at") }

// TestThreeRoundTrips: a question to an index of which nothing is cached takes three round trips,
// with clusters and without.
func TestThreeRoundTrips(t *testing.T) {
	store := open(t)
	topics := newTopics(rand.New(rand.NewPCG(1, 2)), 100, 64)
	b := topics.put(t, load(t, store, "repo").Cluster(3_000), 6_000, 3_000)
	topics.put(t, b, 500, 100)
	for name, clusteredFrom := range map[string]int{"clusters": 3_000, "all vectors": 1_000_000} {
		for _, directory := range []string{"", "folder3"} {
			synctest.Test(t, func(t *testing.T) {
				before := time.Now()
				b, err := segment.Load(t.Context(), slow{store}, keys, "repo", nil)
				if err != nil {
					t.Fatal(err)
				}
				b.Cluster(clusteredFrom)
				q := search.Query{Text: "CamelName w17 w4", Words: strings.Fields("w17 w4 common"),
					Vector: topics.one(), Directory: directory, Limit: 10}
				hits, err := search.Run(t.Context(), b, q)
				if err != nil || len(hits) != 10 {
					t.Fatalf("%s: %d hits, %v", name, len(hits), err)
				}
				if trips := time.Since(before) / trip; trips != 3 {
					t.Errorf("%s, directory %q: %d round trips", name, directory, trips)
				}
				before = time.Now()
				if _, err := search.Run(t.Context(), b, q); err != nil || time.Since(before) != 0 {
					t.Errorf("%s: again, it takes %s, %v", name, time.Since(before), err)
				}
			})
		}
	}
}
