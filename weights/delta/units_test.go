package delta

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestMarkedUnits: the units that a chunk's scan counts and lists are those that differ, of every width, share and tail.
func TestMarkedUnits(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	c := &codec{}
	for _, w := range []int{1, 2, 4, 8} {
		for n := range 300 {
			old := make([]byte, n*w)
			for i := range old {
				old[i] = byte(r.Uint32())
			}
			new := slices.Clone(old)
			var want []uint32
			for i := range n {
				if r.IntN(n+1) >= n%7*n/6 { // none, some, or nearly all
					new[i*w+r.IntN(w)] ^= 1 << r.IntN(8)
					want = append(want, uint32(i))
				}
			}
			count := c.scan(old, new, w)
			if got := list(&c.changed, c.marks, count); count != len(want) || !slices.Equal(got, want) {
				t.Fatalf("%d units of %d bytes: %d changed, %v; want %v", n, w, count, got, want)
			}
		}
	}
}
