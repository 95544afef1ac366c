package storage_test

import (
	"fmt"
	"testing"

	"github.com/rondo-rl/rondo/storage"
)

// BenchmarkTokens gives the tokens a second that one goroutine encodes and decodes.
func BenchmarkTokens(b *testing.B) {
	for _, tokens := range []int{1 << 10, 8 << 10, 32 << 10} {
		trajectory := makeTrajectory(8, tokens/18)
		file := encodeTrajectory(b, trajectory)
		batch := makeBatch(8, tokens)
		rank := encodeBatch(b, batch)
		for name, c := range map[string]struct {
			tokens int
			do     func() error
		}{
			"encode trajectory": {tokens, func() error { _, err := storage.EncodeTrajectory(trajectory); return err }},
			"decode trajectory": {tokens, func() error { _, err := storage.DecodeTrajectory(file); return err }},
			"encode batch":      {8 * tokens, func() error { _, err := storage.EncodeBatch(batch); return err }},
			"decode batch":      {8 * tokens, func() error { _, err := storage.DecodeBatch(rank); return err }},
		} {
			b.Run(fmt.Sprintf("%s/%d", name, tokens), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := c.do(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(c.tokens)*float64(b.N)/1e6/b.Elapsed().Seconds(), "Mtok/s")
			})
		}
	}
}
