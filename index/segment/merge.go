package segment

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/rondo-rl/rondo/index/seal"
	"github.com/rondo-rl/rondo/storage"
)

// maxSmall is how many segments that are not half full an index has at most: a
// query reads each of them.
const maxSmall = 8

// merge replaces small segments by one where there are too many, and writes those again of which a
// third is dead. A row is written again about once for each doubling of the segment that it is in,
// so updates cost what they change, times a logarithm.
func (b *Base) merge(ctx context.Context) error {
	for _, group := range mergers(b.parts, full(b.Dimensions())) {
		others := slices.DeleteFunc(slices.Clone(b.parts), func(p *part) bool { return slices.Contains(group, p) })
		merged, err := b.reader.join(ctx, group, b.tuning.clusters(others))
		if err != nil {
			return err
		}
		b.parts = append(others, merged)
	}
	return nil
}

// weight is what a segment costs to be written again.
func (p *part) weight() int { return p.liveRows() + p.Files - p.DeadFiles }

// mergers gives the groups of segments that are to become one each. Live rows of a
// group are at most limit.
func mergers(parts []*part, limit int) (groups [][]*part) {
	var small []*part
	for _, p := range parts {
		if p.liveRows() < limit/2 {
			small = append(small, p)
		}
	}
	slices.SortStableFunc(small, func(a, b *part) int { return cmp.Compare(a.weight(), b.weight()) })
	var group []*part
	if len(small) > maxSmall {
		sum, live := 0, 0
		for i, p := range small {
			enough := len(small)-i+1 <= maxSmall // one for the group, and the rest
			if i >= 2 && enough && p.weight() > 2*sum || live+p.liveRows() > limit {
				break
			}
			group = append(group, p)
			sum, live = sum+p.weight(), live+p.liveRows()
		}
	}
	if len(group) > 1 {
		groups = append(groups, group)
	} else {
		group = nil
	}
	for _, p := range parts {
		if (p.DeadRows+p.DeadFiles)*3 > p.Rows+p.Files && !slices.Contains(group, p) {
			groups = append(groups, []*part{p})
		}
	}
	return groups
}

// join makes one segment of the live files of several, clustered from so many rows on.
func (r *reader) join(ctx context.Context, parts []*part, clusters int) (*part, error) {
	out := newBuilder(r.keys, parts[0].dimensions)
	out.clusters = clusters
	for _, p := range parts {
		var wants []want
		for _, s := range []section{files, ids, vectors, lengths, rows, postings} {
			for n := range p.pages(s) {
				wants = append(wants, want{p, s, n})
			}
		}
		read, err := r.fetch(ctx, wants)
		if err != nil {
			return nil, err
		}
		if err := p.copyTo(out, read); err != nil {
			return nil, fmt.Errorf("segment %x: %w", p.digest[:8], err)
		}
	}
	return out.build()
}

// copyTo adds the live files of a segment, all of whose pages were read, to another.
func (p *part) copyTo(out *builder, read *pages) error {
	all, err := p.unpack(read)
	if err != nil {
		return err
	}
	live := make([]bool, p.Rows)
	type stretchOf struct {
		file     fileRows
		from, to int
	}
	var kept []stretchOf
	at := 0
	for n := range p.pages(files) {
		f := page[filesPage](read, p, files, n)
		for i, path := range f.paths {
			from := at
			if at += int(f.rows[i]); at > p.Rows {
				return fmt.Errorf("%w: files of more than %d rows", storage.ErrCorrupt, p.Rows)
			}
			if p.dead(n*filesPerPage + i) {
				continue
			}
			for row := from; row < at; row++ {
				live[row] = true
			}
			kept = append(kept, stretchOf{fileRows{path: path, content: f.content[i]}, from, at})
		}
	}
	if err := p.copyWords(out, read, all, live); err != nil {
		return err
	}
	for _, k := range kept {
		k.file.rows = all[k.from:k.to:k.to]
		out.add(k.file)
	}
	return nil
}

// unpack gives all rows of a segment, without their words.
func (p *part) unpack(read *pages) ([]chunkRow, error) {
	all := make([]chunkRow, p.Rows)
	rowAt := make([]uint32, 0, p.Rows) // by slot
	for n := range p.pages(vectors) {
		v := page[vectorPage](read, p, vectors, n)
		for i, row := range v.rows {
			all[row].vector = v.vector(i, p.dimensions)
			rowAt = append(rowAt, row)
		}
	}
	for n := range p.pages(ids) {
		g := page[idsPage](read, p, ids, n)
		for i, slot := range g.slots {
			all[rowAt[slot]].id = [16]byte(g.ids[16*i:])
		}
	}
	for n := range p.pages(lengths) {
		for i, words := range page[lengthsPage](read, p, lengths, n).words {
			all[n*lengthsPerPage+i].length = words
		}
	}
	for n := range p.pages(rows) {
		m := page[rowsPage](read, p, rows, n)
		for i := range m.paths {
			r := &all[n*rowsPerPage+i]
			r.start, r.end, r.first, r.last, r.symbol = m.start[i], m.end[i], m.first[i], m.last[i], m.symbols[i]
		}
	}
	for i := range all {
		if all[i].vector.bytes == nil || all[i].id == [16]byte{} {
			return nil, fmt.Errorf("%w: row %d has no vector or no id", storage.ErrCorrupt, i)
		}
	}
	return all, nil
}

// copyWords gives live rows their words, as positions in the other segment.
func (p *part) copyWords(out *builder, read *pages, all []chunkRow, live []bool) error {
	var scratch []Posting
	for n := range p.pages(postings) {
		g := page[postingPage](read, p, postings, n)
		for i, word := range g.words {
			var err error
			if scratch, err = appendPostings(scratch[:0], g.data[g.starts[i]:g.starts[i+1]], g.counts[i],
				uint32(p.Rows)); err != nil {
				return p.wrong(postings, n, fmt.Errorf("%w: %w", storage.ErrCorrupt, err))
			}
			for _, posting := range scratch {
				if live[posting.Row] {
					r := &all[posting.Row]
					r.words = append(r.words, out.word(word)<<8|min(posting.Count, maxCount))
				}
			}
		}
	}
	if len(out.marks) > maxMarks {
		return fmt.Errorf("%w: %d different words in a segment (limit %d)", storage.ErrTooLarge,
			len(out.marks), maxMarks)
	}
	return nil
}

// Replace gives an empty index in the place of whatever a repository's pointer is: the way out
// where Load says storage.ErrCorrupt.
func Replace(ctx context.Context, store storage.Store, keys *seal.Keys, repo string, cache *Cache) (*Base, error) {
	b := New(store, keys, cache)
	b.repo = keys.Repo(repo)
	key := repoKey(keys.Space(), b.repo)
	_, etag, err := store.Load(ctx, key)
	if err != nil && !isGone(err) {
		return nil, fmt.Errorf("replace index %s: %w", key, err)
	}
	b.etag = etag
	return b, nil
}
