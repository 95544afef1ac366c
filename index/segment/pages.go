package segment

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/rondo-rl/rondo/storage"
)

// Pages as they are used. Their slices belong to the cache and must not be changed.
type (
	filesPage struct {
		paths       []string
		content     [][16]byte
		rows, words []uint32
	}
	orderPage struct {
		ties    []uint64
		rows    []uint32
		classes []uint8
	}
	idsPage struct {
		ids   []byte // 16 each
		slots []uint32
	}
	vectorPage struct {
		vectors []byte // int8s
		scales  []float32
		rows    []uint32
	}
	bitsPage struct {
		signs []uint64
		norms []float32
		rows  []uint32
	}
	lengthsPage struct{ words []uint32 }
	rowsPage    struct {
		paths, symbols          []string
		start, end, first, last []uint32
	}
	postingPage struct {
		words  []uint64
		counts []uint32
		data   []byte
		starts []int32
	}
)

// decode reads a page, opened, of a section of the segment.
func (p *part) decode(s section, page int, packed []byte) (decoded any, err error) {
	limit := uint32(p.Rows)
	err = decodePage(s, p.dimensions, packed, p.inPage(s, page), func(b batch) {
		switch s {
		case files:
			f := &filesPage{paths: b.strings(0, MaxPath), rows: b.numbers(2, MaxFileChunks+1),
				words: b.numbers(3, 1<<31)}
			if !slices.IsSorted(f.paths) {
				panic("paths are not in order")
			}
			for marks := range slices.Chunk(b.fixed(1, 16), 16) {
				f.content = append(f.content, [16]byte(marks))
			}
			decoded = f
		case order:
			decoded = &orderPage{values[uint64](b, 0), b.numbers(1, MaxFileChunks+1), values[uint8](b, 2)}
		case ids:
			decoded = &idsPage{b.fixed(0, 16), b.numbers(1, limit)}
		case vectors:
			decoded = &vectorPage{b.fixed(0, p.dimensions), b.scales(1), b.numbers(2, limit)}
		case signBits:
			words := signWords(p.dimensions)
			signs := make([]uint64, 0, int(b.NumRows())*words)
			for word := range slices.Chunk(b.fixed(0, 8*words), 8) {
				signs = append(signs, binary.LittleEndian.Uint64(word))
			}
			decoded = &bitsPage{signs, b.scales(1), b.numbers(2, limit)}
		case lengths:
			decoded = &lengthsPage{b.numbers(0, MaxWords+1)}
		case rows:
			decoded = &rowsPage{b.strings(0, MaxPath), b.strings(1, MaxSymbol), b.numbers(2, maxOffset),
				b.numbers(3, maxOffset), b.numbers(4, maxOffset), b.numbers(5, maxOffset)}
		case postings:
			data, starts := b.texts(2, maxPage)
			decoded = &postingPage{values[uint64](b, 0), b.numbers(1, limit+1), data, starts}
		}
	})
	if err != nil {
		return nil, p.wrong(s, page, err)
	}
	return decoded, nil
}

func (p *part) wrong(s section, page int, err error) error {
	return fmt.Errorf("segment %x: page %d of %s: %w", p.digest[:8], page, s, err)
}

// list appends the postings of a word in a page.
func (g *postingPage) list(out []Posting, word uint64, limit uint32) ([]Posting, error) {
	at, _ := slices.BinarySearch(g.words, word)
	for ; at < len(g.words) && g.words[at] == word; at++ {
		before := len(out)
		var err error
		if out, err = appendPostings(out, g.data[g.starts[at]:g.starts[at+1]], g.counts[at], limit); err != nil {
			return nil, fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
		}
		if before > 0 && len(out) > before && out[before].Row <= out[before-1].Row {
			return nil, fmt.Errorf("%w: %w: rows are not in order", storage.ErrCorrupt, errPostings)
		}
	}
	return out, nil
}
