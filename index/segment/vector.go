package segment

import (
	"encoding/binary"
	"math"
)

// quantised is a rotated vector with a byte for each coordinate: coordinate i is about scale *
// float32(int8(bytes[i])).
type quantised struct {
	bytes []byte // int8s
	scale float32
}

// quantise rounds to 127 steps of the largest coordinate. A zero vector has the scale 0.
func quantise(v []float32) quantised {
	largest := float32(0)
	for _, x := range v {
		largest = max(largest, max(x, -x))
	}
	q := quantised{bytes: make([]byte, len(v))}
	if largest == 0 {
		return q
	}
	q.scale = largest / 127
	for i, x := range v {
		q.bytes[i] = byte(int8(math.RoundToEven(float64(x) * 127 / float64(largest))))
	}
	return q
}

// minus gives the signs of the difference between two vectors, as bytes whose
// sign it is, and its length.
func (q quantised) minus(other quantised) (signs []byte, length float32) {
	signs = make([]byte, len(q.bytes))
	sum := float32(0)
	for i := range signs {
		x := q.scale*float32(int8(q.bytes[i])) - other.scale*float32(int8(other.bytes[i]))
		if x < 0 {
			signs[i] = 0xff
		}
		sum += x * x
	}
	return signs, float32(math.Sqrt(float64(sum)))
}

// finite reports whether all coordinates are numbers of a sane size.
func finite(v []float32) bool {
	for _, x := range v {
		if !(x > -1e6 && x < 1e6) {
			return false
		}
	}
	return true
}

// signWords is how many words of 64 bits hold the signs of a vector.
func signWords(dimensions int) int { return (dimensions + 63) / 64 }

// appendSigns appends the signs of a quantised vector, a bit for each coordinate,
// filled up to whole words.
func appendSigns(out, bytes []byte) []byte {
	for len(bytes) > 0 {
		word := uint64(0)
		n := min(len(bytes), 64)
		for i, b := range bytes[:n] {
			word |= uint64(b>>7) << i
		}
		out = binary.LittleEndian.AppendUint64(out, word)
		bytes = bytes[n:]
	}
	return out
}
