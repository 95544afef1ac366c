package delta

import (
	"encoding/binary"
	"math/bits"
)

const (
	// escaped is the code of magnitudes that have none of their own.
	escaped = 15

	// blockUnits are looked through at once: their old and new bytes stay in the nearest
	// memory of a core meanwhile.
	blockUnits = 64 * 64
)

// changes is what a codec has collected of a chunk, beside the streams.
type changes struct {
	count int  // units that changed
	most  int  // that may change in a sparse chunk
	since int  // units behind the last one that changed
	few   bool // changed in the last block

	marks          [blockUnits / 64]uint64     // a bit for each unit of the block: whether it changed
	latest         [2 * (blockUnits + 20)]byte // differences of two bytes: those of the block, and some before it
	oldEnd, newEnd [64 * 8]byte                // the end of a chunk
}

// begin makes collect ready for a chunk of so many units.
func (c *codec) begin(units int) {
	c.most = units/4 + 8 // where more changed, positions cost more than zeros in their places
	c.count, c.since, c.few = 0, 0, true
	most := c.most + blockUnits
	for i, size := range [5]int{streamHighs: most + units/255 + 4, streamSigns: most/8 + 1,
		streamMagnitudes: most/2 + 1} {
		c.streams[i] = buffer(&c.streams[i], size)[:0]
	}
}

// collect adds what changed in the next bytes of a chunk to the streams. It reports whether so
// few units changed up to here that their positions are worth their bytes. All bytes but the last
// are given in whole blocks.
func (c *codec) collect(old, new []byte, w int) bool {
	for at := 0; at < len(new) && c.count <= c.most; at += blockUnits * w {
		end := min(at+blockUnits*w, len(new))
		whole := at + (end-at)/(64*w)*(64*w)
		c.collectBlock(old[at:whole], new[at:whole], w)
		if whole < end { // less than 64 units: none of the others, which are zeros, changed
			rest := 64 * w
			clear(c.oldEnd[copy(c.oldEnd[:rest], old[whole:end]):])
			clear(c.newEnd[copy(c.newEnd[:rest], new[whole:end]):])
			c.collectBlock(c.oldEnd[:rest], c.newEnd[:rest], w)
		}
	}
	return c.count <= c.most
}

func (c *codec) collectBlock(old, new []byte, w int) {
	marks := c.marks[:len(new)/(64*w)]
	if w != 2 {
		for i := range marks {
			marks[i] = markUnits(old[64*w*i:], new[64*w*i:], w)
		}
		c.collectUnits(old, new, w, marks)
		return
	}
	before := c.count
	for i := range marks {
		o, n := (*[128]byte)(old[128*i:]), (*[128]byte)(new[128*i:])
		if c.few && *o == *n {
			marks[i] = 0
			continue
		}
		marks[i] = markPairs(o, n)
	}
	c.collectPairs(old, new, marks)
	c.few = (c.count-before)*64 < blockUnits
}

// collectUnits adds the marked units to the streams.
func (c *codec) collectUnits(old, new []byte, w int, marks []uint64) {
	unused := uint(64-8*w) & 63
	for i, left := range marks {
		next := -c.since
		for ; left != 0; left &= left - 1 {
			unit := bits.TrailingZeros64(left)
			gap := unit - next
			for next = unit + 1; gap >= 255; gap -= 255 {
				c.streams[streamHighs] = append(c.streams[streamHighs], 255)
			}
			c.streams[streamHighs] = append(c.streams[streamHighs], byte(gap))
			at := (64*i + unit) * w
			c.add(int64((load(new[at:], w)-load(old[at:], w))<<unused)>>unused, w)
		}
		c.since = 64 - next
	}
}

// add adds a difference to the streams of signs, magnitudes and escapes.
func (c *codec) add(difference int64, w int) {
	sign := difference >> 63
	magnitude := uint64((difference^sign)-sign) - 1
	signs, magnitudes := &c.streams[streamSigns], &c.streams[streamMagnitudes]
	if c.count%8 == 0 {
		*signs = append(*signs, 0)
	}
	if c.count%2 == 0 {
		*magnitudes = append(*magnitudes, 0)
	}
	(*signs)[c.count/8] |= byte(sign) & 1 << (c.count % 8)
	(*magnitudes)[c.count/2] |= byte(min(magnitude, escaped)) << (c.count % 2 * 4)
	if c.count++; magnitude >= escaped {
		var escape [8]byte
		binary.LittleEndian.PutUint64(escape[:], magnitude-escaped)
		c.streams[streamEscapes] = append(c.streams[streamEscapes], escape[:w]...)
	}
}

// collectPairs is collectUnits for units of two bytes, without a branch for each. The last
// differences wait for the next block, or for endPairs.
func (c *codec) collectPairs(old, new []byte, marks []uint64) {
	gaps, since := c.streams[streamHighs], c.since
	high, kept := len(gaps), c.count%16
	gaps = gaps[:cap(gaps)]
	differences := kept
	for i, left := range marks {
		if left == 0 {
			since += 64
			continue
		}
		next := -since
		for first := bits.TrailingZeros64(left); first-next >= 255; next += 255 {
			gaps[high] = 255
			high++
		}
		o, n := (*[128]byte)(old[128*i:]), (*[128]byte)(new[128*i:])
		count := bits.OnesCount64(left)
		since = bits.LeadingZeros64(left)
		for j := 0; j < count; j += 4 { // four at once, though fewer may be left: how many cannot be foreseen
			g, d := gaps[high+j:high+j+4:high+j+4], c.latest[2*(differences+j):2*(differences+j)+8]
			first := bits.TrailingZeros64(left)
			left &= left - 1
			second := bits.TrailingZeros64(left)
			left &= left - 1
			third := bits.TrailingZeros64(left)
			left &= left - 1
			fourth := bits.TrailingZeros64(left)
			left &= left - 1
			g[0], g[1], g[2], g[3] = byte(first-next), byte(second-first-1), byte(third-second-1), byte(fourth-third-1)
			next = fourth + 1
			binary.LittleEndian.PutUint64(d, difference(o, n, first)|difference(o, n, second)<<16|
				difference(o, n, third)<<32|difference(o, n, fourth)<<48)
		}
		high, differences = high+count, differences+count
	}
	c.streams[streamHighs], c.since = gaps[:high], since
	c.count += differences - kept
	c.addPairs(c.latest[:2*differences])
}

// difference is that of a unit of two bytes.
func difference(old, new *[128]byte, unit int) uint64 {
	at := 2 * (unit & 63)
	return uint64(binary.LittleEndian.Uint16(new[at:at+2]) - binary.LittleEndian.Uint16(old[at:at+2]))
}

// addPairs is add for differences of two bytes, sixteen at a time. Those
// that are left over are kept.
func (c *codec) addPairs(differences []byte) {
	signs, magnitudes := c.streams[streamSigns], c.streams[streamMagnitudes]
	for ; len(differences) >= 32; differences = differences[32:] {
		sixteen := differences[:32]
		var below, large, nibbles uint64
		for at := 24; at >= 0; at -= 8 {
			four := le64(sixteen[at:])
			sign := four >> 15 & ones
			magnitude := (four ^ sign*0xffff) + sign - ones
			over := (magnitude + (0x8000-escaped)*ones) >> 15 & ones
			below, large = below<<4|sign, large<<4|over
			nibbles = nibbles<<16 | ((magnitude|over*escaped)&(escaped*ones))*gatherNibbles>>48
		}
		signs = binary.LittleEndian.AppendUint16(signs, uint16(below*gather>>48))
		magnitudes = binary.LittleEndian.AppendUint64(magnitudes, nibbles)
		for left := large * gather >> 48; left != 0; left &= left - 1 {
			difference := int16(binary.LittleEndian.Uint16(sixteen[2*bits.TrailingZeros64(left):]))
			c.streams[streamEscapes] = binary.LittleEndian.AppendUint16(c.streams[streamEscapes],
				uint16(max(difference, -difference))-1-escaped)
		}
	}
	c.streams[streamSigns], c.streams[streamMagnitudes] = signs, magnitudes
	copy(c.latest[:], differences)
}

// endPairs adds the differences that addPairs kept.
func (c *codec) endPairs() {
	kept := c.latest[:c.count%16*2]
	c.count -= len(kept) / 2
	for ; len(kept) > 0; kept = kept[2:] {
		c.add(int64(int16(binary.LittleEndian.Uint16(kept))), 2)
	}
}
