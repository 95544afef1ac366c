package safetensors

import (
	"encoding/binary"
	"fmt"
)

// special says how to find the elements of a type that are no number, in words of eight bytes. An
// element in a word is found by the highest bit of its place, so that no carry leaves it.
type special struct {
	width    int    // bytes of an element
	exponent uint64 // the bits that are all set
	one      uint64 // the lowest of them: adding it sets the highest bit of the place
	sign     bool   // the highest bit must be set, too
	zero     bool   // in place of all that: the element is 0x80, which would be -0
	mantissa uint64 // of the first place: 0 there is an infinity; 0 for types without any
}

const (
	bytes8 = 0x0101010101010101
	bytes4 = 0x0001000100010001
	bytes2 = 0x0000000100000001
)

// specials has the types that can hold NaN or infinities; F4 and F6 of the format cannot, and
// integers are always numbers.
var specials = map[Dtype]special{
	BF16:          {width: 2, exponent: 0x7f80 * bytes4, one: 0x0080 * bytes4, mantissa: 0x007f},
	"F16":         {width: 2, exponent: 0x7c00 * bytes4, one: 0x0400 * bytes4, mantissa: 0x03ff},
	F32:           {width: 4, exponent: 0x7f800000 * bytes2, one: 0x00800000 * bytes2, mantissa: 0x007fffff},
	"C64":         {width: 4, exponent: 0x7f800000 * bytes2, one: 0x00800000 * bytes2, mantissa: 0x007fffff},
	"F64":         {width: 8, exponent: 0x7ff0000000000000, one: 0x0010000000000000, mantissa: 0x000fffffffffffff},
	"F8_E5M2":     {width: 1, exponent: 0x7c * bytes8, one: 0x04 * bytes8, mantissa: 0x03},
	"F8_E4M3":     {width: 1, exponent: 0x7f * bytes8, one: 0x01 * bytes8},
	"F8_E8M0":     {width: 1, exponent: 0x7f * bytes8, one: 0x01 * bytes8, sign: true},
	"F8_E4M3FNUZ": {width: 1, zero: true},
	"F8_E5M2FNUZ": {width: 1, zero: true},
}

// find gives a word whose highest bits mark the places of p, of whole words, that are no number:
// those of all its words together.
func (s special) find(p []byte) (found uint64) {
	high := s.exponent + s.one // no place carries
	switch {
	case s.zero:
		for ; len(p) >= 8; p = p[8:] {
			v := binary.LittleEndian.Uint64(p) ^ 0x80*bytes8
			found |= ^((v&(0x7f*bytes8) + 0x7f*bytes8) | v)
		}
		high = 0x80 * bytes8
	case s.sign:
		for ; len(p) >= 8; p = p[8:] {
			v := binary.LittleEndian.Uint64(p)
			found |= (v&s.exponent + s.one) & v
		}
	default:
		for ; len(p) >= 32; p = p[32:] {
			found |= (binary.LittleEndian.Uint64(p)&s.exponent + s.one) |
				(binary.LittleEndian.Uint64(p[8:])&s.exponent + s.one) |
				(binary.LittleEndian.Uint64(p[16:])&s.exponent + s.one) |
				(binary.LittleEndian.Uint64(p[24:])&s.exponent + s.one)
		}
		for ; len(p) >= 8; p = p[8:] {
			found |= binary.LittleEndian.Uint64(p)&s.exponent + s.one
		}
	}
	return found & high
}

// Numbers finds the tensors of a file that hold NaN or infinities. The file's bytes are written to
// it, in their order, by whoever reads them anyway. It never fails a write.
type Numbers struct {
	tensors []Tensor // in the order of their bytes
	offset  int64    // of the next byte, in the file
	word    [8]byte  // begun and not full
	begun   int
	marked  bool // the first tensor of tensors is found already
	found   []NotFinite
}

// NotFinite is the first element of a tensor that is no number.
type NotFinite struct {
	Tensor   string
	Element  int64 // counted from 0 in the order of the bytes
	Infinite bool  // else NaN
}

// String reads "tensor lm_head.weight: element 17 is NaN".
func (n NotFinite) String() string {
	what := "NaN"
	if n.Infinite {
		what = "infinite"
	}
	return fmt.Sprintf("tensor %.200q: element %d is %s", n.Tensor, n.Element, what)
}

// NewNumbers makes one for a file with a header.
func NewNumbers(h *Header) *Numbers { return &Numbers{tensors: h.Tensors} }

// List lists the tensors of what was written so far that hold an element that is no number.
func (n *Numbers) List() []NotFinite { return n.found }

// Write takes the next bytes of the file.
func (n *Numbers) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 && len(n.tensors) > 0 {
		t := &n.tensors[0]
		end := t.Offset
		if inside := n.offset >= t.Offset; inside {
			end += t.Size
		}
		piece := p[:min(int64(len(p)), end-n.offset)]
		if n.offset >= t.Offset {
			n.scan(t, piece)
		}
		n.offset, p = n.offset+int64(len(piece)), p[len(piece):]
		for len(n.tensors) > 0 && n.offset >= n.tensors[0].Offset+n.tensors[0].Size {
			n.finish(&n.tensors[0])
			n.tensors, n.begun, n.marked = n.tensors[1:], 0, false
		}
	}
	return total, nil
}

// scan looks at the next bytes of a tensor.
func (n *Numbers) scan(t *Tensor, p []byte) {
	s, some := specials[t.Dtype]
	if !some || n.marked {
		return
	}
	position := n.offset - t.Offset
	if n.begun > 0 {
		taken := copy(n.word[n.begun:], p)
		position -= int64(n.begun)
		if n.begun += taken; n.begun < len(n.word) {
			return
		}
		n.note(t, s, n.word[:], position)
		position, p, n.begun = position+8, p[taken:], 0
	}
	const block = 4096 // bytes: what is searched again for the place of what was found
	for ; len(p) >= 8 && !n.marked; p = p[min(block, len(p)&^7):] {
		piece := p[:min(block, len(p)&^7)]
		if s.find(piece) != 0 {
			n.note(t, s, piece, position)
		}
		position += int64(len(piece))
	}
	n.begun = copy(n.word[:], p)
}

// finish looks at the last bytes of a tensor that fill no word.
func (n *Numbers) finish(t *Tensor) {
	s, some := specials[t.Dtype]
	if !some || n.marked || n.begun == 0 {
		return
	}
	clear(n.word[n.begun:]) // 0 is a number in every type
	n.note(t, s, n.word[:], t.Size-int64(n.begun))
}

// note notes the first element of p that is no number, if there is one; position is that of p
// in the tensor, in bytes.
func (n *Numbers) note(t *Tensor, s special, p []byte, position int64) {
	for at := 0; at < len(p); at += s.width {
		var word [8]byte
		copy(word[:], p[at:at+s.width])
		if s.find(word[:]) == 0 {
			continue
		}
		value := binary.LittleEndian.Uint64(word[:])
		n.found = append(n.found, NotFinite{
			Tensor: t.Name, Element: (position + int64(at)) / elementBytes(t.Dtype),
			Infinite: s.mantissa != 0 && value&s.mantissa == 0,
		})
		n.marked = true
		return
	}
}

func elementBytes(d Dtype) int64 { return bits[d] / 8 }
