package events

import "math"

// This file is about log-probabilities in packed bodies: float32 in parts
// that are random, or are not.

const lowBits = 7 // of a mantissa's 23, below two whole bytes

// split32 is numbers in blocks: mantissas and exponents, and the signs unless all are
// negative, which signs says.
func split32(list []float32) (blocks [][]byte, signs byte) {
	n := len(list)
	low := (lowBits*n + 7) / 8
	mantissas, exponents, negative := make([]byte, low+2*n), make([]byte, n), make([]byte, (n+7)/8)
	for i, number := range list {
		v := math.Float32bits(number)
		at := lowBits * i
		first := uint16(v&(1<<lowBits-1)) << (at % 8)
		mantissas[at/8] |= byte(first)
		if first > math.MaxUint8 {
			mantissas[at/8+1] |= byte(first >> 8)
		}
		mantissas[low+i], mantissas[low+n+i] = byte(v>>lowBits), byte(v>>(lowBits+8))
		exponents[i] = byte(v >> 23)
		negative[i/8] |= byte(v>>31) << (i % 8)
		if v>>31 == 0 {
			signs = 1
		}
	}
	if blocks = [][]byte{mantissas, exponents}; signs == 1 {
		blocks = append(blocks, negative)
	}
	return blocks, signs
}

// floats are n numbers; signs: theirs are in it, else they are all negative.
type floats struct {
	n     int
	signs bool
}

func (f floats) low() int { return (lowBits*f.n + 7) / 8 }

// size is how many bytes they take.
func (f floats) size() int {
	size := f.low() + 3*f.n
	if f.signs {
		size += (f.n + 7) / 8
	}
	return size
}

// value is the number with an index.
func (f floats) value(parts []byte, i int) float32 {
	low, at := f.low(), lowBits*i
	first := uint32(parts[at/8])
	if at%8+lowBits > 8 {
		first |= uint32(parts[at/8+1]) << 8
	}
	v := first>>(at%8)&(1<<lowBits-1) | uint32(parts[low+i])<<lowBits | uint32(parts[low+f.n+i])<<(lowBits+8) |
		uint32(parts[low+2*f.n+i])<<23
	if !f.signs || parts[low+3*f.n+i/8]>>(i%8)&1 == 1 {
		v |= 1 << 31
	}
	return math.Float32frombits(v)
}
