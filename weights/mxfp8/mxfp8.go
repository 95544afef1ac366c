// Package mxfp8 makes MXFP8 of bfloat16 weights: blocks of 32 elements of a row share one power of
// two, and each element has eight bits, so that weights take 51.6 % of their bytes. It follows the
// OCP Microscaling Formats specification 1.0, section 6.3, with E4M3 elements and E8M0 scales.
//
// What it makes is an artefact beside a version. The bfloat16 weights stay the truth, and the same
// weights always give the same bytes.
package mxfp8

import (
	"encoding/binary"
	"math"
)

const (
	// Block is how many elements of a row share a scale. The last block of a row may have fewer.
	Block = 32

	emax      = 8     // exponent of the largest E4M3 element, 448 = 1.75 * 2^8
	bias      = 127   // of E8M0
	largest   = 0x7e  // 448
	nan       = 0x7f  // an element that is no number
	nanScale  = 0xff  // a scale that is no number
	threshold = 464.0 // above it an element is nearer to 480, which E4M3 has not, than to 448
)

// Row quantises a row of little-endian bfloat16 elements: codes gets a byte for each element, and
// scales one for each block. It notes the error in e.
//
// A block's scale is 2 to the exponent of its largest element less that of E4M3's, within 2^-127
// and 2^127. Elements are rounded to nearest, ties to even, and those too large saturate at 448. A
// block with an element that is not finite is no number as a whole. The sign of zero stays.
func Row(codes, scales, row []byte, e *Error) {
	for b := 0; b*Block*2 < len(row); b++ {
		at := b * Block
		block := row[2*at : min(len(row), 2*(at+Block))]
		scales[b] = quantise(codes[at:at+len(block)/2], block, e)
	}
}

// Scales is the number of blocks in a row of so many elements.
func Scales(elements int64) int64 { return (elements + Block - 1) / Block }

func quantise(codes, block []byte, e *Error) (scale byte) {
	top := uint16(0)
	for i := 0; i < len(block); i += 2 {
		top = max(top, binary.LittleEndian.Uint16(block[i:])&0x7fff) // as integers, magnitudes are in their order
	}
	if top >= 0x7f80 {
		for i := range codes {
			codes[i] = nan
		}
		e.broken(len(codes))
		return nanScale
	}
	most := float64(number(top))
	exponent := -bias
	if most > 0 {
		exponent = max(-bias, math.Ilogb(most)-emax)
	}
	inverse := math.Ldexp(1, -exponent) // a power of two: products are exact in 64 bits
	for i := range codes {
		value := float64(number(binary.LittleEndian.Uint16(block[2*i:])))
		codes[i] = element(value * inverse)
		e.add(value, math.Ldexp(Element(codes[i]), exponent), most, math.Abs(value*inverse) > threshold)
	}
	return byte(exponent + bias)
}

// number is the value of a bfloat16, the upper half of a 32-bit float.
func number(bits uint16) float32 { return math.Float32frombits(uint32(bits) << 16) }

// element is the E4M3 element nearest to a finite number.
func element(x float64) byte {
	sign := byte(0)
	if math.Signbit(x) {
		sign, x = 0x80, -x
	}
	const smallest = 1.0 / (1 << 6) // of the normal ones
	if x < smallest {
		return sign | byte(math.RoundToEven(x*(1<<9))) // 8 is the smallest normal one
	}
	if x >= threshold {
		return sign | largest
	}
	exponent := math.Ilogb(x)
	mantissa := int(math.RoundToEven(math.Ldexp(x, 3-exponent))) // 8 to 16, which is 8 of the next exponent
	return sign | byte((exponent+7)<<3+mantissa-8)
}

// Element is the value of an E4M3 element.
func Element(code byte) float64 {
	var value float64
	switch exponent, mantissa := int(code>>3&15), float64(code&7); {
	case code&0x7f == nan:
		return math.NaN()
	case exponent == 0:
		value = math.Ldexp(mantissa, -9)
	default:
		value = math.Ldexp(8+mantissa, exponent-10)
	}
	if code&0x80 != 0 {
		value = -value
	}
	return value
}

// Error is what quantising has done to elements.
type Error struct {
	Elements  int64 `json:"elements"`
	Saturated int64 `json:"saturated"`  // that became 448 though they are nearer to more
	Flushed   int64 `json:"flushed"`    // that became 0 and were not
	NotFinite int64 `json:"not_finite"` // of blocks with an element that is not finite
	// Max is the largest error relative to the largest element of its block, and Mean the sum of
	// the errors relative to that of the elements.
	Max  float64 `json:"max_relative"`
	Mean float64 `json:"mean_relative"`

	errors, magnitudes float64
}

func (e *Error) add(was, is, most float64, saturated bool) {
	e.Elements++
	wrong := math.Abs(was - is)
	if e.errors, e.magnitudes = e.errors+wrong, e.magnitudes+math.Abs(was); most > 0 {
		e.Max = max(e.Max, wrong/most)
	}
	if saturated {
		e.Saturated++
	}
	if is == 0 && was != 0 {
		e.Flushed++
	}
	if e.magnitudes > 0 {
		e.Mean = e.errors / e.magnitudes
	}
}

func (e *Error) broken(elements int) {
	e.Elements += int64(elements)
	e.NotFinite += int64(elements)
}
