package segment

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/rondo-rl/rondo/storage"
)

// Request says what a query looks for.
type Request struct {
	// Words are those of BM25, each once. Names are of declarations, in lower case, each once.
	Words, Names []string
	// Vector is the query's, not rotated; nil for a query by words alone.
	Vector []float32
	// Directory is a folder or a file within which rows count, "" for all.
	Directory string
}

// View is what a query reads of an index, of all rows: to rank them. Where they
// are is told by Base.Locate.
type View struct {
	Rows  int   // live ones, whatever the directory
	Words int64 // in them

	parts []*partView
	query query
}

// Row names a row of a view.
type Row struct {
	part int32
	row  uint32
}

type partView struct {
	*part
	*table
	words, names [][]Posting // of live rows, by the request's words
	lengths      []*lengthsPage
	vectors      []*vectorPage // all, of a segment that is searched whole
	probed       []probed      // of one that is searched by its clusters
	within       []stretch     // of rows; nil: all
}

// probed are the slots of a cluster, or a part of them.
type probed struct {
	page     *bitsPage
	first    int // slot of the page
	from, to int // entries
	likeness float64
}

// stretch is a range of rows or files.
type stretch struct{ from, to uint32 }

// table is what ranking needs of a segment's files. It is made once.
type table struct {
	mu      sync.Mutex
	ready   bool
	starts  []uint32 // the first row of each file, and the end
	ties    []uint64
	classes []uint8
	live    []uint64 // a bit for each row
}

// fill makes the table of pages that were read.
func (t *table) fill(p *part, read *pages) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ready {
		return nil
	}
	t.starts, t.live = make([]uint32, 0, p.Files+1), make([]uint64, (p.Rows+63)/64)
	t.ties, t.classes = make([]uint64, 0, p.Files), make([]uint8, 0, p.Files)
	at := 0
	for n := range p.pages(order) {
		o := page[orderPage](read, p, order, n)
		for _, count := range o.rows {
			t.starts = append(t.starts, uint32(at))
			if at+int(count) > p.Rows {
				return p.wrong(order, n, fmt.Errorf("%w: more than %d rows", storage.ErrCorrupt, p.Rows))
			}
			if !p.dead(len(t.starts) - 1) {
				for row := at; row < at+int(count); row++ {
					t.live[row/64] |= 1 << (row % 64)
				}
			}
			at += int(count)
		}
		t.ties, t.classes = append(t.ties, o.ties...), append(t.classes, o.classes...)
	}
	if at != p.Rows {
		return fmt.Errorf("segment %x: %w: files of %d rows, where it has %d", p.digest[:8],
			storage.ErrCorrupt, at, p.Rows)
	}
	t.starts = append(t.starts, uint32(at))
	t.ready = true
	return nil
}

func (t *table) alive(row uint32) bool { return t.live[row/64]&(1<<(row%64)) != 0 }

// file is the one that a row belongs to.
func (t *table) file(row uint32) int {
	return sort.Search(len(t.starts), func(i int) bool { return t.starts[i] > row }) - 1
}

// Read reads what a query needs to rank rows, in one round trip.
func (b *Base) Read(ctx context.Context, r Request) (*View, error) {
	v := &View{}
	if r.Vector != nil {
		if len(r.Vector) != b.Dimensions() && len(b.parts) > 0 || !finite(r.Vector) {
			return nil, fmt.Errorf("a query with %d coordinates for an index of %s with %d", len(r.Vector),
				b.Embedder(), b.Dimensions())
		}
		v.query = newQuery(b.keys.Rotation(len(r.Vector)).Apply(r.Vector))
	}
	var words, names []uint64
	for _, w := range r.Words {
		words = append(words, b.keys.Word(w))
	}
	for _, n := range r.Names {
		names = append(names, b.keys.Symbol(n))
	}
	var wants []want
	clustered := b.clustered()
	for _, p := range b.parts {
		v.Rows += p.liveRows()
		v.Words += p.Words - p.DeadWords
		if p.Rows == 0 {
			continue
		}
		for _, s := range []section{order, lengths} {
			for n := range p.pages(s) {
				wants = append(wants, want{p, s, n})
			}
		}
		for _, word := range slices.Concat(words, names) {
			for from, to := p.pagesWith(word); from < to; from++ {
				wants = append(wants, want{p, postings, from})
			}
		}
		for _, bound := range bounds(r.Directory) {
			if n := p.pageOf(bound); n >= 0 {
				wants = append(wants, want{p, files, n})
			}
		}
		if r.Vector != nil && !clustered[p] {
			for n := range p.pages(vectors) {
				wants = append(wants, want{p, vectors, n})
			}
		}
	}
	var probes []probe
	if r.Vector != nil {
		probes = b.probes(&v.query, clustered, r.Directory != "")
	}
	for _, p := range probes {
		for n := p.from / bitsPerPage; n*bitsPerPage < p.end; n++ {
			wants = append(wants, want{p.part, signBits, n})
		}
	}
	read, err := b.fetch(ctx, wants)
	if err != nil {
		return nil, err
	}
	for _, p := range b.parts {
		if p.Rows == 0 {
			continue
		}
		pv, err := p.view(read, r, words, names)
		if err != nil {
			return nil, err
		}
		v.parts = append(v.parts, pv)
		if r.Vector != nil && !clustered[p] {
			for n := range p.pages(vectors) {
				pv.vectors = append(pv.vectors, page[vectorPage](read, p, vectors, n))
			}
		}
		for _, c := range probes {
			for n := c.from / bitsPerPage; c.part == p && n*bitsPerPage < c.end; n++ {
				first := n * bitsPerPage
				pv.probed = append(pv.probed, probed{page[bitsPage](read, p, signBits, n), first, max(c.from-first, 0),
					min(c.end-first, bitsPerPage), c.likeness})
			}
		}
	}
	return v, nil
}

// clustered are the segments that are searched by their clusters.
func (b *Base) clustered() map[*part]bool {
	rows, some := 0, map[*part]bool{}
	for _, p := range b.parts {
		if rows += p.liveRows(); len(p.clusters) > 0 {
			some[p] = true
		}
	}
	if rows <= b.tuning.exactRows {
		return nil
	}
	return some
}

// probes gives the clusters that a query looks into: within a directory all, as the
// nearest may have nothing of it.
func (b *Base) probes(q *query, clustered map[*part]bool, whole bool) []probe {
	var parts []*part
	for _, p := range b.parts {
		if clustered[p] {
			parts = append(parts, p)
		}
	}
	return q.probes(parts, whole)
}

func (p *part) view(read *pages, r Request, words, names []uint64) (*partView, error) {
	if err := p.table.fill(p, read); err != nil {
		return nil, err
	}
	v := &partView{part: p, table: p.table}
	for n := range p.pages(lengths) {
		v.lengths = append(v.lengths, page[lengthsPage](read, p, lengths, n))
	}
	if r.Directory != "" {
		v.within = p.rowsBelow(read, r.Directory)
	}
	var err error
	if v.words, err = v.lists(read, words); err != nil {
		return nil, err
	}
	v.names, err = v.lists(read, names)
	return v, err
}

// lists reads the postings of live rows.
func (v *partView) lists(read *pages, words []uint64) (all [][]Posting, err error) {
	for _, word := range words {
		var l []Posting
		for from, to := v.pagesWith(word); from < to; from++ {
			if l, err = page[postingPage](read, v.part, postings, from).list(l, word, uint32(v.Rows)); err != nil {
				return nil, v.wrong(postings, from, err)
			}
		}
		if v.DeadRows > 0 {
			l = slices.DeleteFunc(l, func(p Posting) bool { return !v.alive(p.Row) })
		}
		all = append(all, l)
	}
	return all, nil
}

// pagesWith are the pages of postings in which a word can stand.
func (p *part) pagesWith(word uint64) (from, to int) {
	upper, n := uint32(word>>32), p.pages(postings)
	first := func(i int) uint32 { return binary.BigEndian.Uint32(p.Terms[4*i:]) }
	from = sort.Search(n, func(i int) bool { return first(i) >= upper })
	for to = from; to < n && first(to) == upper; to++ {
	}
	return max(from-1, 0), to
}

// bounds are between which paths the files of a directory stand, and after
// which a file of that name.
func bounds(directory string) []string {
	if directory == "" {
		return nil
	}
	return []string{directory + "/", directory + "0", directory, directory + "\x00"} // '0' comes after '/'
}

// rowsBelow gives the rows below a directory, and those of the file of that path.
func (p *part) rowsBelow(read *pages, directory string) []stretch {
	var at [4]uint32
	for i, bound := range bounds(directory) {
		if n := p.pageOf(bound); n >= 0 {
			paths := page[filesPage](read, p, files, n).paths
			in, _ := slices.BinarySearchFunc(paths, bound, strings.Compare)
			at[i] = p.table.starts[n*filesPerPage+in]
		}
	}
	return []stretch{{at[0], at[1]}, {at[2], at[3]}}
}

// contains reports whether a row is within the request's directory.
func (v *partView) contains(row uint32) bool {
	for _, s := range v.within {
		if row >= s.from && row < s.to {
			return true
		}
	}
	return v.within == nil
}

// Postings gives, part by part, the live rows in which the i-th of the request's words stands.
func (v *View) Postings(i int, each func(part int, rows int, list []Posting)) {
	for n, p := range v.parts {
		each(n, p.Rows, p.words[i])
	}
}

// Named gives the live rows within the directory that hold a declaration with
// one of the request's names.
func (v *View) Named() []Row {
	var all []Row
	for n, p := range v.parts {
		var in []uint32
		for _, list := range p.names {
			for _, posting := range list {
				if p.contains(posting.Row) {
					in = append(in, posting.Row)
				}
			}
		}
		slices.Sort(in)
		for _, row := range slices.Compact(in) {
			all = append(all, Row{int32(n), row})
		}
	}
	return all
}

// RowOf names a row of a part.
func RowOf(part int, row uint32) Row { return Row{int32(part), row} }

// Contains reports whether a row is within the request's directory.
func (v *View) Contains(r Row) bool { return v.parts[r.part].contains(r.row) }

// Length is how many words a row has.
func (v *View) Length(r Row) uint32 {
	return v.parts[r.part].lengths[r.row/lengthsPerPage].words[r.row%lengthsPerPage]
}

// Class is what kind of file a row belongs to.
func (v *View) Class(r Row) Class {
	p := v.parts[r.part]
	return Class(p.classes[p.file(r.row)])
}

// Compare orders rows in a way that does not depend on how the index came about: by a mark of the
// path, and by where they are in the file.
func (v *View) Compare(a, b Row) int {
	p, q := v.parts[a.part], v.parts[b.part]
	f, g := p.file(a.row), q.file(b.row)
	switch x, y := p.ties[f], q.ties[g]; {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return int(a.row-p.table.starts[f]) - int(b.row-q.table.starts[g])
}

// Location is where a row is, and what it declares.
type Location struct {
	Path                string
	Start, End          int // bytes
	FirstLine, LastLine int
	Symbol              string
}

// Locate tells where rows of a view of this index are, and replaces estimates among the near ones
// by their scores, the best first: both in one round trip.
func (b *Base) Locate(ctx context.Context, v *View, all []Row, near []Neighbour) ([]Location, error) {
	var wants []want
	for _, r := range all {
		wants = append(wants, want{v.parts[r.part].part, rows, int(r.row) / rowsPerPage})
	}
	for _, n := range near {
		if n.Estimate {
			p := v.parts[n.Row.part].part
			wants = append(wants, want{p, vectors, int(n.slot) / perPage(vectors, p.dimensions)})
		}
	}
	read, err := b.fetch(ctx, wants)
	if err != nil {
		return nil, err
	}
	v.score(read, near)
	out := make([]Location, len(all))
	for i, r := range all {
		m, k := page[rowsPage](read, v.parts[r.part].part, rows, int(r.row)/rowsPerPage), int(r.row)%rowsPerPage
		out[i] = Location{m.paths[k], int(m.start[k]), int(m.end[k]), int(m.first[k]), int(m.last[k]), m.symbols[k]}
	}
	return out, nil
}
