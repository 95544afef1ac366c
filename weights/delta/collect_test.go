package delta

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

// plainStreams makes the streams of a sparse chunk one unit after the other, with
// gaps that are not shifted.
func plainStreams(old, new []byte, w int) (count int, streams [5][]byte) {
	gap := 0
	for i := 0; i < len(new); i += w {
		difference := int64((load(new[i:], w)-load(old[i:], w))<<(64-8*w)) >> (64 - 8*w)
		if difference == 0 {
			gap++
			continue
		}
		for ; gap >= 255; gap -= 255 {
			streams[streamHighs] = append(streams[streamHighs], 255)
		}
		streams[streamHighs] = append(streams[streamHighs], byte(gap))
		gap = 0
		if count%8 == 0 {
			streams[streamSigns] = append(streams[streamSigns], 0)
		}
		if count%2 == 0 {
			streams[streamMagnitudes] = append(streams[streamMagnitudes], 0)
		}
		magnitude := uint64(difference) - 1
		if difference < 0 {
			magnitude = uint64(-difference) - 1
			streams[streamSigns][count/8] |= 1 << (count % 8)
		}
		if magnitude >= escaped {
			streams[streamEscapes] = append(streams[streamEscapes],
				binary.LittleEndian.AppendUint64(nil, magnitude-escaped)[:w]...)
			magnitude = escaped
		}
		streams[streamMagnitudes][count/2] |= byte(magnitude) << (count % 2 * 4)
		count++
	}
	return count, streams
}

// wantCollected collects a chunk in pieces of so many units, and compares the streams.
func wantCollected(t *testing.T, c *codec, old, new []byte, w, piece int) {
	t.Helper()
	n := len(new) / w
	count, want := plainStreams(old, new, w)
	c.begin(n)
	fits := true
	for at := 0; at < n && fits; at += piece {
		end := min(at+piece, n)
		fits = c.collect(old[at*w:end*w], new[at*w:end*w], w)
	}
	if fits != (count <= n/4+8) {
		t.Fatalf("%d of %d units of %d bytes changed; they fit: %t", count, n, w, fits)
	}
	if !fits {
		return
	}
	if w == 2 {
		c.endPairs()
	}
	if c.count != count {
		t.Fatalf("%d of %d units of %d bytes changed, want %d", c.count, n, w, count)
	}
	for i := range want {
		if !slices.Equal(c.streams[i], want[i]) {
			t.Fatalf("%d of %d units of %d bytes changed, %d at once: stream %d has %d bytes, want %d", count, n, w,
				piece, i, len(c.streams[i]), len(want[i]))
		}
	}
}

// TestCollect: what is collected is what changed, for every width, share and tail, with differences
// of every size, of a chunk at once and in pieces.
func TestCollect(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	c := &codec{}
	sizes := []int{blockUnits - 1, blockUnits, blockUnits + 1, 3*blockUnits + 17, 9*blockUnits + 64}
	for n := 0; n < 200; n += 1 + n/20 {
		sizes = append(sizes, n)
	}
	for _, w := range []int{1, 2, 4, 8} {
		for _, n := range sizes {
			for _, share := range []float64{0, 0.0005, 0.01, 0.05, 0.2, 1} {
				old := randomUnits(r, n*w)
				new := slices.Clone(old)
				for i := range n {
					if r.Float64() < share {
						difference := [...]uint64{1, ^uint64(0), uint64(r.IntN(40) - 20),
							1 << (8*w - 1), r.Uint64()}[r.IntN(5)]
						save(new[i*w:], w, load(new[i*w:], w)+difference)
					}
				}
				wantCollected(t, c, old, new, w, max(n, 1))
				wantCollected(t, c, old, new, w, blockUnits)
			}
		}
	}
}

// TestCollectGaps: gaps of the lengths at which a byte more begins.
func TestCollectGaps(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 3))
	c := &codec{}
	for _, w := range []int{1, 2, 4, 8} {
		old := randomUnits(r, 3*blockUnits*w)
		for _, gap := range []int{0, 1, 62, 63, 64, 65, 253, 254, 255, 256, 318, 319, 320, 509, 510, 511,
			blockUnits - 1, blockUnits} {
			new := slices.Clone(old)
			for i := gap; i < 3*blockUnits; i += gap + 1 {
				new[i*w]++
			}
			wantCollected(t, c, old, new, w, blockUnits)
		}
	}
}

func randomUnits(r *rand.Rand, n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}
