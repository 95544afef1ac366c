package segment_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rondo-rl/rondo/index/search"
	"github.com/rondo-rl/rondo/index/segment"
	"github.com/rondo-rl/rondo/storage"
)

// chunksPerFile and wordsPerChunk are about those of real code.
const (
	chunksPerFile = 8
	wordsPerChunk = 100
)

// synthetic makes files of chunks that look to an index like code.
type synthetic struct {
	*topics
	words *rand.Zipf
}

func newSynthetic() *synthetic {
	random := rand.New(rand.NewPCG(1, 2))
	return &synthetic{newTopics(random, 500, 192), rand.NewZipf(random, 1.1, 4, 100_000)}
}

func (s *synthetic) file(n int) segment.File {
	f := segment.File{Path: fmt.Sprintf("package%d/folder%d/file%06d.go", n%50, n%7, n)}
	for i := range chunksPerFile {
		c := segment.Chunk{Start: 800 * i, End: 800 * (i + 1), FirstLine: 25*i + 1, LastLine: 25 * (i + 1),
			Symbol: fmt.Sprintf("Function%d", s.random.IntN(1e6)), Vector: s.one()}
		binary.BigEndian.PutUint64(c.ID[:], s.random.Uint64())
		for range wordsPerChunk {
			c.Words = append(c.Words, fmt.Sprintf("w%d", s.words.Uint64()))
		}
		f.Chunks = append(f.Chunks, c)
	}
	return f
}

func (s *synthetic) update() segment.Update {
	var digest [32]byte
	binary.BigEndian.PutUint64(digest[:], s.random.Uint64())
	return segment.Update{Root: keys.Root(digest)}
}

// build makes an index of so many chunks.
func (s *synthetic) build(tb testing.TB, store storage.Store, chunks int) *segment.Base {
	tb.Helper()
	w, err := load(tb, store, "repo").Begin("synthetic", 192)
	for n := 0; n < chunks/chunksPerFile && err == nil; n++ {
		err = w.Put(tb.Context(), s.file(n))
	}
	if err != nil {
		tb.Fatal(err)
	}
	b, err := w.Commit(tb.Context(), s.update())
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// BenchmarkCommit: what an update costs follows the files that changed, not
// the tree. Merges are in it.
func BenchmarkCommit(b *testing.B) {
	for _, chunks := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("chunks=%d", chunks), func(b *testing.B) {
			s, store := newSynthetic(), open(b)
			base := s.build(b, store, chunks)
			for _, changed := range []int{1, 10, 1000} {
				b.Run(fmt.Sprintf("files=%d", changed), func(b *testing.B) {
					for b.Loop() {
						b.StopTimer()
						c := segment.Change{Embedder: "synthetic", Dimensions: 192, Update: s.update()}
						// files that are there
						for at := s.random.IntN(max(chunks/chunksPerFile-changed, 1)); len(c.Put) < changed; at++ {
							c.Put = append(c.Put, s.file(at))
						}
						b.StartTimer()
						base = commit(b, base, c)
					}
				})
			}
		})
	}
}

// BenchmarkQuery: with all pages in memory, and with none.
func BenchmarkQuery(b *testing.B) {
	for _, chunks := range []int{10_000, 100_000, 300_000} {
		b.Run(fmt.Sprintf("chunks=%d", chunks), func(b *testing.B) {
			s, store := newSynthetic(), open(b)
			c := s.build(b, store, chunks).Counts()
			ask := func(b *testing.B, base *segment.Base) {
				b.Helper()
				q := search.Query{Text: "a question", Vector: s.one(), Limit: 10}
				for range 6 {
					q.Words = append(q.Words, fmt.Sprintf("w%d", 20+s.words.Uint64()))
				}
				if hits, err := search.Run(b.Context(), base, q); err != nil || len(hits) != 10 {
					b.Fatalf("%d hits, %v", len(hits), err)
				}
			}
			b.Run("warm", func(b *testing.B) {
				base := load(b, store, "repo")
				for range 3 {
					ask(b, base)
				}
				for b.Loop() {
					ask(b, base)
				}
				b.ReportMetric(float64(c.Bytes)/float64(c.Chunks), "bytes/chunk")
			})
			b.Run("cold", func(b *testing.B) {
				for b.Loop() {
					ask(b, load(b, store, "repo"))
				}
			})
		})
	}
}
