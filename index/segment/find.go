package segment

import (
	"context"
	"encoding/binary"
	"iter"
	"slices"
	"strings"
)

// liveFile is where a live file is.
type liveFile struct {
	part    *part
	file    int // in the segment
	content [16]byte
	rows    int
	words   int64
}

// pageOf is the page of files in which a path stands, if it is in the segment; -1 when it cannot.
func (p *part) pageOf(path string) int {
	at, exact := slices.BinarySearchFunc(p.Paths, path,
		func(first []byte, path string) int { return strings.Compare(string(first), path) })
	if exact {
		return at
	}
	return at - 1
}

// find looks live files up by their paths.
func (b *Base) find(ctx context.Context, paths []string) (map[string]liveFile, error) {
	var wants []want
	for _, path := range paths {
		for _, p := range b.parts {
			if n := p.pageOf(path); n >= 0 {
				wants = append(wants, want{p, files, n})
			}
		}
	}
	read, err := b.fetch(ctx, wants)
	if err != nil {
		return nil, err
	}
	all := map[string]liveFile{}
	for _, path := range paths {
		for _, p := range b.parts {
			n := p.pageOf(path)
			if n < 0 {
				continue
			}
			f := page[filesPage](read, p, files, n)
			at, ok := slices.BinarySearch(f.paths, path)
			if file := n*filesPerPage + at; ok && !p.dead(file) {
				all[path] = liveFile{p, file, f.content[at], int(f.rows[at]), int64(f.words[at])}
			}
		}
	}
	return all, nil
}

// File reports whether a path is in the index, and the mark of its content:
// seal.Keys.Content of the digest.
func (b *Base) File(ctx context.Context, path string) (content [16]byte, ok bool, err error) {
	all, err := b.find(ctx, []string{path})
	f, ok := all[path]
	return f.content, ok, err
}

// Files yields the live files with the marks of their contents, sorted by path: what to compare
// with a tree where nothing else is known of what the index holds. An error ends it.
func (b *Base) Files(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		var wants []want
		for _, p := range b.parts {
			for n := range p.pages(files) {
				wants = append(wants, want{p, files, n})
			}
		}
		read, err := b.fetch(ctx, wants)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		var all []Entry
		for _, p := range b.parts {
			for n := range p.pages(files) {
				f := page[filesPage](read, p, files, n)
				for i, path := range f.paths {
					if !p.dead(n*filesPerPage + i) {
						all = append(all, Entry{path, f.content[i], int(f.rows[i])})
					}
				}
			}
		}
		slices.SortFunc(all, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// Entry is a file in an index.
type Entry struct {
	Path    string
	Content [16]byte
	Chunks  int
}

// slot is where a vector is.
type slot struct {
	part *part
	slot uint32
}

// pagesOf are the pages of ids in which an id can stand: more than one only where a page begins
// with the same four bytes.
func (p *part) pagesOf(id *[16]byte) (from, to int) {
	prefix, n := binary.BigEndian.Uint32(id[:4]), p.pages(ids)
	first := func(i int) uint32 { return binary.BigEndian.Uint32(p.IDs[4*i:]) }
	for from, to = 0, n; from < to; { // the first page that begins with the prefix or later
		if mid := (from + to) / 2; first(mid) < prefix {
			from = mid + 1
		} else {
			to = mid
		}
	}
	for to = from; to < n && first(to) == prefix; to++ {
	}
	return max(from-1, 0), to
}

// vectorsOf finds the vectors of ids, of dead rows as well: they are as good.
func (r *reader) vectorsOf(ctx context.Context, parts []*part, marks [][16]byte) (map[[16]byte]slot, error) {
	var wants []want
	for i := range marks {
		for _, p := range parts {
			for from, to := p.pagesOf(&marks[i]); from < to; from++ {
				wants = append(wants, want{p, ids, from})
			}
		}
	}
	read, err := r.fetch(ctx, wants)
	if err != nil {
		return nil, err
	}
	all := map[[16]byte]slot{}
	for i := range marks {
		for _, p := range parts {
			for from, to := p.pagesOf(&marks[i]); from < to; from++ {
				if s, ok := page[idsPage](read, p, ids, from).find(&marks[i]); ok {
					all[marks[i]] = slot{p, s}
				}
			}
		}
	}
	return all, nil
}

func (g *idsPage) find(id *[16]byte) (uint32, bool) {
	low, high := 0, len(g.slots)
	for low < high {
		if mid := (low + high) / 2; string(g.ids[16*mid:][:16]) < string(id[:]) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == len(g.slots) || string(g.ids[16*low:][:16]) != string(id[:]) {
		return 0, false
	}
	return g.slots[low], true
}

// Has tells which chunks need not be embedded: a vector of the same id is there.
func (b *Base) Has(ctx context.Context, ids [][16]byte) ([]bool, error) {
	all, err := b.vectorsOf(ctx, b.parts, ids)
	if err != nil {
		return nil, err
	}
	has := make([]bool, len(ids))
	for i := range ids {
		_, has[i] = all[ids[i]]
	}
	return has, nil
}

// load reads vectors.
func (r *reader) load(ctx context.Context, slots map[[16]byte]slot) (map[[16]byte]quantised, error) {
	var wants []want
	for _, s := range slots {
		wants = append(wants, want{s.part, vectors, int(s.slot) / perPage(vectors, s.part.dimensions)})
	}
	read, err := r.fetch(ctx, wants)
	if err != nil {
		return nil, err
	}
	all := make(map[[16]byte]quantised, len(slots))
	for id, s := range slots {
		per := perPage(vectors, s.part.dimensions)
		v := page[vectorPage](read, s.part, vectors, int(s.slot)/per)
		all[id] = v.vector(int(s.slot)%per, s.part.dimensions)
	}
	return all, nil
}

func (v *vectorPage) vector(i, dimensions int) quantised {
	return quantised{v.vectors[i*dimensions:][:dimensions:dimensions], v.scales[i]}
}
