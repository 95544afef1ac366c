package segment

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/rondo-rl/rondo/index/seal"
)

// builder collects the files of a segment.
type builder struct {
	keys       *seal.Keys
	dimensions int

	words    map[uint64]uint32 // marks of words, as positions in marks
	marks    []uint64
	known    map[string]uint32 // words whose marks were made already
	files    []fileRows
	rows     int
	length   int64 // words in all rows
	clusters int   // from how many rows on the segment is clustered
}

type fileRows struct {
	path    string
	content [16]byte
	rows    []chunkRow
}

type chunkRow struct {
	id                      [16]byte
	vector                  quantised
	start, end, first, last uint32
	symbol                  string
	length                  uint32
	words                   []uint32 // position in marks << 8 | count
}

func newBuilder(keys *seal.Keys, dimensions int) *builder {
	return &builder{keys: keys, dimensions: dimensions, words: map[uint64]uint32{}, known: map[string]uint32{}}
}

// word gives a mark's position.
func (b *builder) word(mark uint64) uint32 {
	at, ok := b.words[mark]
	if !ok {
		at = uint32(len(b.marks))
		b.marks = append(b.marks, mark)
		b.words[mark] = at
	}
	return at
}

// maxNames bounds the declarations of a chunk that are found by their exact name.
const maxNames = 16

// namesOf are the names under which a symbol is found: each declaration's, and the last part of it.
func namesOf(symbol string) (names []string) {
	for name := range strings.SplitSeq(symbol, ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		if name == "" {
			continue
		}
		names = append(names, name)
		if last := strings.LastIndexAny(name, ".:# "); last >= 0 && last+1 < len(name) {
			names = append(names, name[last+1:])
		}
		if len(names) >= maxNames {
			break
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// counted gives a chunk's words and the names of its symbol as positions with counts.
func (b *builder) counted(c *Chunk) []uint32 {
	at := func(text, key string, mark func(string) uint64) uint32 {
		i, ok := b.known[key]
		if !ok {
			i = b.word(mark(text))
			b.known[strings.Clone(key)] = i
		}
		return i
	}
	all := make([]uint32, 0, len(c.Words)+4)
	for _, w := range c.Words {
		all = append(all, at(w, w, b.keys.Word))
	}
	for _, name := range namesOf(c.Symbol) {
		all = append(all, at(name, "\x00"+name, b.keys.Symbol))
	}
	slices.Sort(all)
	out := all[:0]
	for i := 0; i < len(all); {
		word, n := all[i], 0
		for ; i < len(all) && all[i] == word; i++ {
			n++
		}
		out = append(out, word<<8|uint32(min(n, maxCount)))
	}
	return slices.Clip(slices.Clone(out))
}

// maxMarks is how many different words a segment may have, as positions have 24 bits.
const maxMarks = 1 << 24

func (b *builder) add(f fileRows) {
	b.files = append(b.files, f)
	b.rows += len(f.rows)
	for i := range f.rows {
		b.length += int64(f.rows[i].length)
	}
}

// object is a segment as it is written: pages one after another.
type object struct {
	part
	keys *seal.Keys
}

func (o *object) page(s section, columns ...arrow.ArrayData) error {
	packed, err := encodePage(s, o.dimensions, columns...)
	if err != nil {
		return err
	}
	sealed := o.keys.Seal(packed, o.place(s, len(o.starts[s])))
	o.starts[s] = append(o.starts[s], int64(len(o.data))) // as a counter; newPart sets them right
	o.Pages[s] = binary.AppendUvarint(o.Pages[s], uint64(len(sealed)))
	o.data = append(o.data, sealed...)
	return nil
}

// each calls write for each page of a section with n entries.
func (o *object) each(s section, n int, write func(from, to int) error) error {
	per := perPage(s, o.dimensions)
	for from := 0; from < n; from += per {
		if err := write(from, min(from+per, n)); err != nil {
			return err
		}
	}
	return nil
}

// build makes the segment of the files collected, at least one.
func (b *builder) build() (*part, error) {
	slices.SortFunc(b.files, func(x, y fileRows) int { return strings.Compare(x.path, y.path) })
	all := make([]*chunkRow, 0, b.rows)
	for i := range b.files {
		for k := range b.files[i].rows {
			all = append(all, &b.files[i].rows[k])
		}
	}
	o := &object{keys: b.keys}
	o.dimensions = b.dimensions
	o.Name = make([]byte, 16)
	rand.Read(o.Name)
	o.Files, o.Rows, o.Words = len(b.files), b.rows, b.length
	o.data = append(o.data, segmentMagic...)
	slots := b.slots(o, all)
	for _, write := range []func(*object) error{
		b.writeFiles, b.writeOrder,
		func(o *object) error { return writeIDs(o, all, slots) },
		func(o *object) error { return writeVectors(o, all, slots) },
		func(o *object) error { return writeBits(o, all, slots) },
		func(o *object) error { return writeLengths(o, all) },
		b.writeRows,
		func(o *object) error { return b.writePostings(o, all) },
	} {
		if err := write(o); err != nil {
			return nil, err
		}
	}
	o.Size = int64(len(o.data))
	p, err := newPart(sha256.Sum256(o.data), b.dimensions, o.entry)
	if err != nil {
		return nil, err
	}
	p.data = o.data
	return p, nil
}

func (b *builder) writeFiles(o *object) error {
	return o.each(files, len(b.files), func(from, to int) error {
		var paths []string
		var contents []byte
		var counts, words []uint32
		for _, f := range b.files[from:to] {
			length := uint32(0)
			for i := range f.rows {
				length += f.rows[i].length
			}
			paths, contents = append(paths, f.path), append(contents, f.content[:]...)
			counts, words = append(counts, uint32(len(f.rows))), append(words, length)
		}
		o.Paths = append(o.Paths, []byte(paths[0]))
		return o.page(files, textColumn(paths), bytesColumn(16, contents), uint32Column(counts), uint32Column(words))
	})
}

func (b *builder) writeOrder(o *object) error {
	return o.each(order, len(b.files), func(from, to int) error {
		var ties []uint64
		var counts []uint32
		var classes []uint8
		for _, f := range b.files[from:to] {
			mark := b.keys.Path(f.path)
			ties = append(ties, binary.BigEndian.Uint64(mark[:]))
			counts, classes = append(counts, uint32(len(f.rows))), append(classes, uint8(ClassOf(f.path)))
		}
		return o.page(order, fixedColumn(arrow.PrimitiveTypes.Uint64, ties), uint32Column(counts),
			fixedColumn(arrow.PrimitiveTypes.Uint8, classes))
	})
}

func writeIDs(o *object, all []*chunkRow, slots []uint32) error {
	sorted := make([]uint32, len(all)) // slots
	for i := range sorted {
		sorted[i] = uint32(i)
	}
	slices.SortFunc(sorted, func(x, y uint32) int {
		a, b := &all[slots[x]].id, &all[slots[y]].id
		return cmp.Or(slices.Compare(a[:], b[:]), cmp.Compare(x, y))
	})
	return o.each(ids, len(sorted), func(from, to int) error {
		var marks []byte
		for _, slot := range sorted[from:to] {
			marks = append(marks, all[slots[slot]].id[:]...)
		}
		o.IDs = append(o.IDs, marks[:4]...)
		return o.page(ids, bytesColumn(16, marks), uint32Column(sorted[from:to]))
	})
}

func writeVectors(o *object, all []*chunkRow, slots []uint32) error {
	return o.each(vectors, len(all), func(from, to int) error {
		data, scales := make([]byte, 0, (to-from)*o.dimensions), make([]float32, 0, to-from)
		for _, row := range slots[from:to] {
			data, scales = append(data, all[row].vector.bytes...), append(scales, all[row].vector.scale)
		}
		return o.page(vectors, bytesColumn(o.dimensions, data), fixedColumn(arrow.PrimitiveTypes.Float32, scales),
			uint32Column(slots[from:to]))
	})
}

func writeBits(o *object, all []*chunkRow, slots []uint32) error {
	if len(o.Clusters) == 0 {
		return nil
	}
	width := 8 * signWords(o.dimensions)
	clusters := readCentroids(o.Clusters, o.Centroids, o.dimensions)
	return o.each(signBits, len(all), func(from, to int) error {
		signs, norms := make([]byte, 0, (to-from)*width), make([]float32, 0, to-from)
		for slot := from; slot < to; slot++ {
			for slot >= clusters[0].end {
				clusters = clusters[1:]
			}
			difference, norm := all[slots[slot]].vector.minus(clusters[0].quantised)
			signs, norms = appendSigns(signs, difference), append(norms, norm)
		}
		return o.page(signBits, bytesColumn(width, signs), fixedColumn(arrow.PrimitiveTypes.Float32, norms),
			uint32Column(slots[from:to]))
	})
}

func writeLengths(o *object, all []*chunkRow) error {
	return o.each(lengths, len(all), func(from, to int) error {
		words := make([]uint32, 0, to-from)
		for _, r := range all[from:to] {
			words = append(words, r.length)
		}
		return o.page(lengths, uint32Column(words))
	})
}

func (b *builder) writeRows(o *object) error {
	var paths, symbols []string
	var numbers [4][]uint32
	flush := func() error {
		if len(paths) == 0 {
			return nil
		}
		err := o.page(rows, textColumn(paths), textColumn(symbols), uint32Column(numbers[0]), uint32Column(numbers[1]),
			uint32Column(numbers[2]), uint32Column(numbers[3]))
		paths, symbols, numbers = nil, nil, [4][]uint32{}
		return err
	}
	for _, f := range b.files {
		for i := range f.rows {
			r := &f.rows[i]
			paths, symbols = append(paths, f.path), append(symbols, r.symbol)
			for k, v := range [4]uint32{r.start, r.end, r.first, r.last} {
				numbers[k] = append(numbers[k], v)
			}
			if len(paths) == rowsPerPage {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	return flush()
}

// writePostings cuts a long list into several entries of the same word, so that a rare word beside
// it does not cost its length.
func (b *builder) writePostings(o *object, all []*chunkRow) error {
	lists := make([]list, len(b.marks))
	var sorted []uint32 // positions of marks
	for row, r := range all {
		for _, w := range r.words {
			l := &lists[w>>8]
			if l.count == 0 {
				sorted = append(sorted, w>>8)
			}
			l.add(uint32(row), w&0xff)
		}
	}
	slices.SortFunc(sorted, func(x, y uint32) int { return cmp.Compare(b.marks[x], b.marks[y]) })
	var words []uint64
	var counts []uint32
	var data [][]byte
	size := 0
	flush := func() error {
		if len(words) == 0 {
			return nil
		}
		o.Terms = binary.BigEndian.AppendUint32(o.Terms, uint32(words[0]>>32))
		err := o.page(postings, fixedColumn(arrow.PrimitiveTypes.Uint64, words), uint32Column(counts), textColumn(data))
		words, counts, data, size = nil, nil, nil, 0
		return err
	}
	add := func(mark uint64, l *list) error {
		if size > 0 && size+len(l.data) > postingsPage {
			if err := flush(); err != nil {
				return err
			}
		}
		words, counts, data = append(words, mark), append(counts, l.count), append(data, l.data)
		size += len(l.data) + 16
		return nil
	}
	for _, at := range sorted {
		l := &lists[at]
		if len(l.data) <= postingsPage {
			if err := add(b.marks[at], l); err != nil {
				return err
			}
			continue
		}
		all, err := appendPostings(make([]Posting, 0, l.count), l.data, l.count, math.MaxUint32)
		if err != nil {
			return err
		}
		for len(all) > 0 {
			var piece list // its first step leads to the first row
			for len(all) > 0 && len(piece.data) < postingsPage-16 {
				piece.add(all[0].Row, all[0].Count)
				all = all[1:]
			}
			if err := add(b.marks[at], &piece); err != nil {
				return err
			}
		}
	}
	return flush()
}
