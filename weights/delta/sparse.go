package delta

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A sparse chunk is a count, a shift (0 or 8), and five streams: gaps between changed units
// (shifted, 255 means: 255 and more follows), the gaps' low bytes where the shift is 8, signs,
// magnitudes less 1 as four bits (15 means: an escape follows), and escapes of the units' width.
// Each stream is packed by zstd, whose Huffman codes come near the entropy of bytes whose
// distribution is smooth; two magnitudes share a byte since a code takes at least one bit.

const (
	streamHighs = iota
	streamLows
	streamSigns
	streamMagnitudes
	streamEscapes
)

// encodeSparse makes the frame of a chunk of so many units of what was collected,
// nil when that is nothing.
func (c *codec) encodeSparse(units, w int, digest Digest) []byte {
	if c.count == 0 {
		return nil
	}
	if w == 2 {
		c.endPairs()
	}
	shift := byte(0)
	if units/c.count >= 160 {
		shift = 8
		c.splitGaps()
	}
	c.head(sparse, digest)
	c.frame = append(binary.AppendUvarint(c.frame, uint64(c.count)), shift)
	for i, stream := range c.streams {
		c.pack(stream, i != streamSigns) // signs are noise
	}
	return c.frame
}

// splitGaps makes the streams of gaps that are shifted of the one that is not.
func (c *codec) splitGaps() {
	gaps := c.streams[streamHighs]
	lows := buffer(&c.streams[streamLows], c.count)
	gap, high, low := 0, 0, 0
	for _, b := range gaps {
		if gap += int(b); b == 255 {
			continue
		}
		lows[low] = byte(gap)
		low++
		for gap >>= 8; gap >= 255; gap -= 255 {
			gaps[high] = 255
			high++
		}
		gaps[high] = byte(gap)
		gap, high = 0, high+1
	}
	c.streams[streamHighs], c.streams[streamLows] = gaps[:high], lows
}

func zeroed(b *[]byte, n int) []byte {
	data := buffer(b, n)
	clear(data)
	return data
}

// pack appends a stream to the frame: its length, its length when packed (0:
// it is not), and its bytes.
func (c *codec) pack(data []byte, squeeze bool) {
	c.frame = binary.AppendUvarint(c.frame, uint64(len(data)))
	if squeeze && len(data) > 16 {
		if c.packed = c.squeeze(data); len(c.packed) < len(data) {
			c.frame = append(binary.AppendUvarint(c.frame, uint64(len(c.packed))), c.packed...)
			return
		}
	}
	c.frame = append(append(c.frame, 0), data...)
}

var errShort = errors.New("it ends too early")

// unpack reads a stream of at most limit bytes into memory of its own.
func (c *codec) unpack(body []byte, into *[]byte, limit int) (data, rest []byte, err error) {
	length, n := binary.Uvarint(body)
	if n <= 0 || length > uint64(limit) {
		return nil, nil, fmt.Errorf("a stream of %d bytes (limit %d)", length, limit)
	}
	stored, m := binary.Uvarint(body[n:])
	if m <= 0 {
		return nil, nil, errShort
	}
	body = body[n+m:]
	if stored == 0 {
		if length > uint64(len(body)) {
			return nil, nil, errShort
		}
		return body[:length], body[length:], nil
	}
	if stored > uint64(len(body)) {
		return nil, nil, errShort
	}
	data, err = c.decoder.DecodeAll(body[:stored], buffer(into, int(length))[:0:length])
	if err != nil || uint64(len(data)) != length {
		return nil, nil, fmt.Errorf("a stream is no frame of %d bytes: %w", length, err)
	}
	return data, body[stored:], nil
}

func (c *codec) applySparse(body, data []byte, w int) error {
	n := len(data) / w
	count, read := binary.Uvarint(body)
	if read <= 0 || count > uint64(n) || len(body) <= read || body[read] != 0 && body[read] != 8 {
		return fmt.Errorf("%d of %d units", count, n)
	}
	shift := uint(body[read])
	body = body[read+1:]
	var streams [5][]byte
	for i, limit := range [5]int{int(count) + n/255 + 1, int(count), int(count+7) / 8,
		int(count+1) / 2, int(count) * w} {
		var err error
		if streams[i], body, err = c.unpack(body, &c.streams[i], limit); err != nil {
			return err
		}
	}
	lows := 0
	if shift > 0 {
		lows = int(count)
	}
	if len(body) > 0 || len(streams[streamLows]) != lows || len(streams[streamSigns]) != int(count+7)/8 ||
		len(streams[streamMagnitudes]) != int(count+1)/2 {
		return errors.New("its streams have other lengths than its count")
	}
	return addSparse(&streams, int(count), shift, data, w)
}

// addSparse adds the differences in the streams to data.
func addSparse(streams *[5][]byte, count int, shift uint, data []byte, w int) error {
	highs, lows, signs, magnitudes, escapes := streams[0], streams[1], streams[2], streams[3], streams[4]
	at, high := 0, 0 // the unit, and the byte of highs
	n := len(data) / w
	for i := range count {
		gap := 0
		for high < len(highs) && highs[high] == 255 {
			gap += 255
			high++
		}
		if high == len(highs) {
			return errShort
		}
		gap += int(highs[high])
		high++
		if shift > 0 {
			gap = gap<<8 | int(lows[i])
		}
		if at += gap; at >= n {
			return fmt.Errorf("unit %d of %d", at, n)
		}
		magnitude := uint64(magnitudes[i>>1] >> (i & 1 * 4) & 15)
		if magnitude == 15 {
			if len(escapes) < w {
				return errShort
			}
			magnitude += load(escapes, w)
			escapes = escapes[w:]
		}
		// all bits, or none: half of the signs are set, and a branch could not be foreseen
		below := -uint64(signs[i>>3] >> (i & 7) & 1)
		save(data[at*w:], w, load(data[at*w:], w)+((magnitude+1)^below)-below)
		at++
	}
	if high != len(highs) || len(escapes) > 0 {
		return errors.New("streams are left over")
	}
	return nil
}

// encodePlanes appends the bytes of all units to the frame, plane by plane.
func (c *codec) encodePlanes(data []byte, w int) {
	planes := buffer(&c.planes, len(data))
	splitPlanes(data, planes, w)
	n := len(data) / w
	for j := range w {
		c.pack(planes[j*n:(j+1)*n], true)
	}
}

func (c *codec) decodePlanes(body, planes []byte, w int) error {
	n := len(planes) / w
	for j := range w {
		plane := planes[j*n : (j+1)*n : (j+1)*n]
		data, rest, err := c.unpack(body, &plane, n)
		if err != nil {
			return err
		}
		if len(data) != n {
			return fmt.Errorf("a plane of %d units in place of %d", len(data), n)
		}
		copy(plane, data)
		body = rest
	}
	if len(body) > 0 {
		return fmt.Errorf("%d bytes are left over", len(body))
	}
	return nil
}
