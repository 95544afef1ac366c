package delta

import (
	"encoding/binary"
	"math/bits"
)

func le64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// wordAt is the word of eight bytes of this number; zeros follow what there is.
func wordAt(data []byte, i int) uint64 {
	if 8*i+8 <= len(data) {
		return le64(data[8*i:])
	}
	var word [8]byte
	copy(word[:], data[8*i:])
	return le64(word[:])
}

// topBits has the top bit of each unit of w bytes in a word.
func topBits(w int) uint64 {
	return [9]uint64{1: 0x8080808080808080, 2: 0x8000800080008000, 4: 0x8000000080000000, 8: 0x8000000000000000}[w]
}

// changedUnits has the top bit of each unit of x that is not 0.
func changedUnits(x, tops uint64) uint64 { return ((x &^ tops) + ^tops | x) & tops }

const (
	// pairs has the top bits of units of two bytes, and ones their lowest bits.
	pairs = 0x8000800080008000
	ones  = 0x0001000100010001
	// gather brings the lowest bits of such units together, at the top of a product, and
	// gatherNibbles the lowest four bits of each.
	gather        = 1<<48 | 1<<33 | 1<<18 | 1<<3
	gatherNibbles = 1<<48 | 1<<36 | 1<<24 | 1<<12
)

// markUnits has a bit for each of the 64 units of w bytes that changed.
func markUnits(old, new []byte, w int) (marks uint64) {
	tops := topBits(w)
	for i := range 8 * w {
		for left := changedUnits(wordAt(old, i)^wordAt(new, i), tops); left != 0; left &= left - 1 {
			marks |= 1 << ((8*i + bits.TrailingZeros64(left)/8) / w)
		}
	}
	return marks
}

// markPairs is markUnits for units of two bytes. Which of them changed cannot be foreseen, so
// there is no branch for each.
func markPairs(old, new *[128]byte) (marks uint64) {
	for i := 0; i < 128; i += 32 {
		o, n := old[i:i+32:i+32], new[i:i+32:i+32]
		four := changedUnits(le64(o)^le64(n), pairs)>>15 | changedUnits(le64(o[8:])^le64(n[8:]), pairs)>>11
		four |= changedUnits(le64(o[16:])^le64(n[16:]), pairs)>>7 | changedUnits(le64(o[24:])^le64(n[24:]), pairs)>>3
		marks = marks>>16 | four*gather&(0xffff<<48)
	}
	return marks
}

// load reads an integer of w bytes.
func load(b []byte, w int) uint64 {
	switch w {
	case 8:
		return binary.LittleEndian.Uint64(b)
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	}
	return uint64(b[0])
}

func save(b []byte, w int, value uint64) {
	switch w {
	case 8:
		binary.LittleEndian.PutUint64(b, value)
	case 4:
		binary.LittleEndian.PutUint32(b, uint32(value))
	case 2:
		binary.LittleEndian.PutUint16(b, uint16(value))
	default:
		b[0] = byte(value)
	}
}

// zigzag makes a small number of a small difference of either sign: 0, -1, 1, -2 become 0, 1, 2, 3.
// The difference has so many bits, and so has the result.
func zigzag(difference uint64, unit uint) uint64 {
	signed := int64(difference<<(64-unit)) >> (64 - unit)
	return uint64(signed<<1) ^ uint64(signed>>63)
}

func unzigzag(value uint64) uint64 { return value>>1 ^ -(value & 1) }

// differences are those of all units, zigzag.
func (c *codec) differences(old, new []byte, w int) []byte {
	out := buffer(&c.frame2, len(new))
	unit := uint(8 * w)
	if w == 2 {
		for i := 0; i+2 <= len(new); i += 2 {
			d := int16(binary.LittleEndian.Uint16(new[i:]) - binary.LittleEndian.Uint16(old[i:]))
			binary.LittleEndian.PutUint16(out[i:], uint16(d<<1)^uint16(d>>15))
		}
		return out
	}
	for i := 0; i < len(new); i += w {
		save(out[i:], w, zigzag(load(new[i:], w)-load(old[i:], w), unit))
	}
	return out
}

// splitPlanes puts the first bytes of all units in front, then the second ones, and so on.
func splitPlanes(data, planes []byte, w int) {
	n := len(data) / w
	for j := range w {
		plane := planes[j*n : (j+1)*n]
		for i, at := 0, j; i < len(plane); i, at = i+1, at+w {
			plane[i] = data[at]
		}
	}
}

// joinPlanes undoes splitPlanes.
func joinPlanes(planes, data []byte, w int) {
	n := len(data) / w
	for j := range w {
		for i, b := range planes[j*n : (j+1)*n] {
			data[i*w+j] = b
		}
	}
}

// addPlanes adds the differences in planes to data.
func addPlanes(planes, data []byte, w int) {
	n := len(data) / w
	for i := range n {
		value := uint64(0)
		for j := range w {
			value |= uint64(planes[j*n+i]) << (8 * j)
		}
		if value != 0 {
			save(data[i*w:], w, load(data[i*w:], w)+unzigzag(value))
		}
	}
}
