package chunk

import "unicode/utf8"

// part is a range of bytes on its way to a chunk.
type part struct {
	start, end int
	depth      int  // of its first line
	declares   bool // whether a declaration begins it
}

// pack cuts lines into parts that are no larger than Max, and joins small ones.
func pack(content []byte, lines []line) []part {
	p := packer{content: content, lines: lines}
	p.split(0, len(lines))
	return p.join()
}

type packer struct {
	content []byte
	lines   []line
	parts   []part
}

// split cuts the lines from lo to hi at the cheapest places, and what is
// then still too large again.
func (p *packer) split(lo, hi int) {
	for lo < hi && p.lines[lo].blank {
		lo++
	}
	for lo < hi && p.lines[hi-1].blank {
		hi--
	}
	if lo == hi {
		return
	}
	size := p.lines[hi-1].end - p.lines[lo].start
	cheapest, declares := noCut, false
	for i := lo + 1; i < hi; i++ {
		if c := p.lines[i].cost; c < cheapest {
			cheapest, declares = c, p.lines[i].declares
		} else if c == cheapest {
			declares = declares || p.lines[i].declares
		}
	}
	outermost := declares && cheapest < 2
	switch {
	case size <= small, size <= target && !outermost, size <= Max && !declares:
		p.add(lo, p.lines[lo].start, p.lines[hi-1].end)
	case hi-lo == 1:
		p.splitLine(lo)
	default:
		from := lo
		for i := lo + 1; i < hi; i++ {
			if l := &p.lines[i]; l.cost == cheapest && !l.blank {
				p.split(from, i)
				from = i
			}
		}
		if from == lo { // nothing but blank lines to cut at: give up on structure
			p.splitLine(lo)
			from = lo + 1
		}
		p.split(from, hi)
	}
}

// splitLine cuts a line that is too large by itself, where it has a space if that is near,
// and never within a rune.
func (p *packer) splitLine(i int) {
	start, end := p.lines[i].start, p.lines[i].end
	for end-start > Max {
		cut := start + target
		for back := cut; back > cut-200; back-- {
			if blankByte(p.content[back-1]) {
				cut = back
				break
			}
		}
		for back := 0; back < utf8.UTFMax-1 && !utf8.RuneStart(p.content[cut]); back++ {
			cut--
		}
		p.add(i, start, cut)
		start = cut
	}
	p.add(i, start, end)
}

// add appends a part without the blank at its end, and without blank lines at its beginning.
func (p *packer) add(i, start, end int) {
	for end > start && blankByte(p.content[end-1]) {
		end--
	}
	if end > start {
		l := &p.lines[i]
		first := start == l.start
		p.parts = append(p.parts, part{start: start, end: end, depth: l.depth, declares: first && l.declares})
	}
}

// join puts neighbours together: pieces of something large up to the target, whole declarations
// only while they are small.
func (p *packer) join() []part {
	var joined []part
	for _, next := range p.parts {
		if len(joined) > 0 {
			last := &joined[len(joined)-1]
			sum := next.end - last.start
			apart := next.declares || next.depth < last.depth
			// a class's head, its end
			lead, tail := last.end-last.start < tiny, next.end-next.start < tiny && !next.declares
			if sum <= small || sum <= target && !apart || sum <= Max && (lead || tail) {
				last.end = next.end
				last.depth = min(last.depth, next.depth)
				continue
			}
		}
		joined = append(joined, next)
	}
	return joined
}
