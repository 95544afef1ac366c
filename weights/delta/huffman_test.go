package delta

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestLiteralsFrames: every decoder of zstd reads the frames that this package makes of large
// streams: of one block and of several, of bytes that pack, that do not, and that are all the same.
func TestLiteralsFrames(t *testing.T) {
	c, err := newCodec()
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	r := rand.New(rand.NewPCG(1, 1))
	kinds := map[string]func() byte{
		"noise":  func() byte { return byte(r.Uint32()) },
		"skewed": func() byte { return byte(r.ExpFloat64() * 9) },
		"rare":   func() byte { return byte(r.ExpFloat64() * 0.2) },
		"same":   func() byte { return 7 },
		"two":    func() byte { return byte(r.Uint32() & 1) },
	}
	for name, next := range kinds {
		for _, n := range []int{17, leastHuffman, 70_000, literals - 1, literals, literals + 1,
			2*literals + 5, 1 << 20} {
			t.Run(fmt.Sprint(name, n), func(t *testing.T) {
				data := make([]byte, n)
				for i := range data {
					data[i] = next()
				}
				for _, frame := range [][]byte{bytes.Clone(c.squeeze(data)), bytes.Clone(c.literalsFrame(data))} {
					got, err := c.decoder.DecodeAll(frame, make([]byte, 0, n))
					if err != nil || !bytes.Equal(got, data) {
						t.Fatalf("a frame of %d bytes gives %d bytes: %v", len(frame), len(got), err)
					}
				}
				if frame := c.squeeze(data); name == "skewed" && n >= leastHuffman && len(frame) > n*6/8 {
					t.Errorf("%d bytes of %d", len(frame), n)
				}
			})
		}
	}
}
