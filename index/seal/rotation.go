package seal

import (
	"math"
	"math/bits"
	"math/rand/v2"
)

// rounds is how often a rotation flips signs, shuffles and mixes. A coordinate reaches all
// the others in two rounds, if there is one block of more than half of the dimensions; the
// others smooth what is left.
const rounds = 4

// Rotation is an orthogonal map: it keeps lengths and inner products, and gives the same bits on
// every machine. It also spreads a vector's weight evenly over the coordinates, so that a sign and
// a byte of each say more.
type Rotation struct {
	signs  [rounds][]bool // where to change the sign
	orders [rounds][]int  // where the i-th coordinate comes from
}

func newRotation(seed []byte, dimensions int) *Rotation {
	source := rand.NewChaCha8([32]byte(seed))
	random := rand.New(source)
	r := &Rotation{}
	for round := range rounds {
		r.signs[round] = make([]bool, dimensions)
		for i := range r.signs[round] {
			r.signs[round][i] = source.Uint64()&1 == 1
		}
		r.orders[round] = random.Perm(dimensions)
	}
	return r
}

// Apply gives the rotated vector, which must have the rotation's number of dimensions.
func (r *Rotation) Apply(vector []float32) []float32 {
	from, to := make([]float32, len(vector)), make([]float32, len(vector))
	copy(from, vector)
	for round := range rounds {
		for i, at := range r.orders[round] {
			if to[i] = from[at]; r.signs[round][i] {
				to[i] = -to[i]
			}
		}
		// The blocks are powers of two, the largest first; shuffling carries
		// weight from one to another.
		for rest := to; len(rest) > 0; {
			size := 1 << (bits.Len(uint(len(rest))) - 1)
			hadamard(rest[:size])
			rest = rest[size:]
		}
		from, to = to, from
	}
	return from
}

// hadamard multiplies a vector, whose length is a power of two, with the
// orthogonal Hadamard matrix.
func hadamard(v []float32) {
	for half := 1; half < len(v); half *= 2 {
		for start := 0; start < len(v); start += 2 * half {
			for i := start; i < start+half; i++ {
				a, b := v[i], v[i+half]
				v[i], v[i+half] = a+b, a-b
			}
		}
	}
	scale := float32(1 / math.Sqrt(float64(len(v))))
	for i := range v {
		v[i] *= scale
	}
}
