package segment

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/rondo-rl/rondo/storage"
)

// section is a part of a segment: pages of one kind, one after another.
type section uint8

// Sections, in the order in which they lie in a segment. It is kept on disk.
const (
	files   section = iota // path, content, rows and words of each file, sorted by path: to find one
	order                  // what ranking needs of each file, in the same order
	ids                    // of the chunks, sorted, with the slot of each: to use vectors again
	vectors                // a byte for each coordinate, by slot
	// how a vector differs from its cluster's centroid: signs and length, by slot, only
	// where there are clusters
	signBits
	lengths  // in words, by row
	rows     // where the chunks are, by row
	postings // in which rows a word stands, sorted by word
	sections
)

var sectionNames = [sections]string{"files", "order", "ids", "vectors", "bits", "lengths", "rows", "postings"}

func (s section) String() string { return sectionNames[s] }

// A row is a chunk's place in the order of paths, and of the chunks in a file. A slot is its
// place among the vectors: where there are clusters, those of a cluster are together;
// otherwise it is the row.

// Entries of a page. What is read whole has large pages; what is read here
// and there has small ones.
const (
	filesPerPage   = 256
	orderPerPage   = 4096
	idsPerPage     = 1024
	bitsPerPage    = 512
	lengthsPerPage = 16 << 10
	rowsPerPage    = 128
	vectorsPage    = 16 << 10 // bytes
	postingsPage   = 32 << 10 // bytes
)

const segmentMagic = "RONDOSG1"

// perPage is how many entries the pages of a section have, but the last one; 0 where that varies.
func perPage(s section, dimensions int) int {
	switch s {
	case files:
		return filesPerPage
	case order:
		return orderPerPage
	case ids:
		return idsPerPage
	case vectors:
		return min(max(vectorsPage/(dimensions+8), 8), 256)
	case signBits:
		return bitsPerPage
	case lengths:
		return lengthsPerPage
	case rows:
		return rowsPerPage
	default:
		return 0
	}
}

// entry is what a manifest says of a segment.
type entry struct {
	Name  []byte `json:"name"` // random, part of the place for which each page is sealed
	Size  int64  `json:"size"`
	Files int    `json:"files"`
	Rows  int    `json:"rows"`
	Words int64  `json:"words"` // in all rows

	// Dead has a bit for each file, nil for none. The other figures are those of the dead files.
	Dead      []byte `json:"dead,omitempty"`
	DeadFiles int    `json:"dead_files,omitempty"`
	DeadRows  int    `json:"dead_rows,omitempty"`
	DeadWords int64  `json:"dead_words,omitempty"`

	Pages [sections][]byte `json:"pages"` // their lengths, as varints
	Paths [][]byte         `json:"paths"` // the first one of each page of files; bytes, as paths need not be UTF-8
	IDs   []byte           `json:"ids"`   // the first four bytes of each page of ids
	Terms []byte           `json:"terms"` // the upper four bytes of the first word of each page of postings

	Clusters  []byte `json:"clusters,omitempty"`  // how many slots each has, as varints
	Centroids []byte `json:"centroids,omitempty"` // of each cluster a float32 as scale and a byte for each coordinate
}

// part is a segment as an index uses it.
type part struct {
	entry
	digest     [32]byte
	dimensions int
	// starts are where the pages of each section begin in the object, and where the last one ends.
	starts   [sections][]int64
	clusters []cluster
	// data is the object itself, where it is not in the store (yet).
	data  []byte
	table *table
}

func (p *part) liveRows() int { return p.Rows - p.DeadRows }

// dead reports whether a file of the segment is.
func (p *part) dead(file int) bool {
	return p.Dead != nil && p.Dead[file/8]&(1<<(file%8)) != 0
}

// place is what a page is sealed for.
func (p *part) place(s section, page int) string {
	return "rondo segment 1 " + string(p.Name) + " " + s.String() + " " + strconv.Itoa(page)
}

// entries is how many entries a section has; of postings it is not known.
func (p *part) entries(s section) int {
	switch s {
	case files, order:
		return p.Files
	case signBits:
		if len(p.Clusters) == 0 {
			return 0
		}
		return p.Rows
	default:
		return p.Rows
	}
}

// inPage is how many entries a page must have; 0 where that varies.
func (p *part) inPage(s section, page int) int {
	per := perPage(s, p.dimensions)
	if per == 0 {
		return 0
	}
	return min(per, p.entries(s)-page*per)
}

func (p *part) pages(s section) int { return len(p.starts[s]) - 1 }

// newPart checks an entry, which may come from anywhere.
func newPart(digest [32]byte, dimensions int, e entry) (*part, error) {
	p := &part{entry: e, digest: digest, dimensions: dimensions, table: &table{}}
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("segment %x: %w: %s", digest[:8], storage.ErrCorrupt, fmt.Sprintf(format, args...))
	}
	switch {
	case len(e.Name) != 16:
		return nil, wrong("a name of %d bytes", len(e.Name))
	case e.Size < 0 || e.Size > storage.MaxObject:
		return nil, wrong("%d bytes", e.Size)
	case e.Files < 1 || e.Files > maxRows || e.Rows < 0 || e.Rows > maxRows || e.Words < 0 ||
		e.Words > int64(e.Rows)*MaxWords:
		return nil, wrong("%d files, %d rows, %d words", e.Files, e.Rows, e.Words)
	case len(e.Dead) != 0 && len(e.Dead) != (e.Files+7)/8:
		return nil, wrong("%d bytes for the dead of %d files", len(e.Dead), e.Files)
	case e.DeadFiles < 0 || e.DeadFiles > e.Files || e.DeadRows < 0 || e.DeadRows > e.Rows ||
		e.DeadWords < 0 || e.DeadWords > e.Words:
		return nil, wrong("%d files, %d rows and %d words are dead", e.DeadFiles, e.DeadRows, e.DeadWords)
	}
	at := int64(len(segmentMagic))
	for s := range sections {
		p.starts[s] = []int64{at}
		for rest := e.Pages[s]; len(rest) > 0; {
			length, n := binary.Uvarint(rest)
			if n <= 0 || length == 0 || length > maxPage {
				return nil, wrong("a page of %s with %d bytes", s, length)
			}
			rest = rest[n:]
			at += int64(length)
			p.starts[s] = append(p.starts[s], at)
		}
		if per := perPage(s, dimensions); per != 0 && p.pages(s) != (p.entries(s)+per-1)/per {
			return nil, wrong("%d pages of %s for %d entries", p.pages(s), s, p.entries(s))
		}
	}
	if at != e.Size {
		return nil, wrong("pages to %d of %d bytes", at, e.Size)
	}
	if len(e.Paths) != p.pages(files) || len(e.IDs) != 4*p.pages(ids) || len(e.Terms) != 4*p.pages(postings) {
		return nil, wrong("%d paths, %d ids and %d words for its pages", len(e.Paths), len(e.IDs)/4, len(e.Terms)/4)
	}
	if err := p.readClusters(); err != nil {
		return nil, wrong("%v", err)
	}
	return p, nil
}

func (p *part) readClusters() error {
	count, total := 0, uint64(0)
	for rest := p.Clusters; len(rest) > 0; count++ {
		size, n := binary.Uvarint(rest)
		if total += size; n <= 0 || size > maxRows {
			return fmt.Errorf("a cluster of %d", size)
		}
		rest = rest[n:]
	}
	if len(p.Centroids) != count*(4+p.dimensions) || count > 0 && total != uint64(p.Rows) {
		return fmt.Errorf("%d clusters of %d rows in a segment of %d, with %d bytes of centroids", count, total,
			p.Rows, len(p.Centroids))
	}
	p.clusters = readCentroids(p.Clusters, p.Centroids, p.dimensions)
	for _, c := range p.clusters {
		if !(c.scale >= 0 && c.scale < 1e6) {
			return fmt.Errorf("a centroid of scale %g", c.scale)
		}
	}
	return nil
}

func segmentKey(space string, digest [32]byte) string {
	return "index/" + space + "/segments/" + hex.EncodeToString(digest[:])
}

func rootKey(space, root string) string { return "index/" + space + "/roots/" + root }

func repoKey(space, repo string) string { return "index/" + space + "/repos/" + repo }
