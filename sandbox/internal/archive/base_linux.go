package archive

import (
	"bufio"
	"encoding/gob"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"time"
)

// record is what is written of one path of a base.
type record struct {
	Name         string
	Mode         uint32
	Link         string
	Size         int64
	Sum          []byte
	Known        bool
	Inode        uint64
	RawMode      uint32
	Second, Nano int64
}

// summary precedes a base's records.
type summary struct {
	Count int
	Bytes int64
}

// Encode writes a base for DecodeBase.
func (b *Base) Encode(to io.Writer) error {
	out := bufio.NewWriter(to)
	encoder := gob.NewEncoder(out)
	if err := encoder.Encode(summary{len(b.files), b.bytes()}); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(b.files)) {
		s := b.files[name]
		err := encoder.Encode(record{
			Name: name, Mode: uint32(s.mode), Link: s.link, Size: s.size, Sum: s.sum[:],
			Known: s.identity.known, Inode: s.identity.inode, RawMode: s.identity.mode,
			Second: s.identity.second, Nano: s.identity.nano,
		})
		if err != nil {
			return err
		}
	}
	return out.Flush()
}

// DecodeBase reads what Encode wrote of a tree that nothing has written to since.
func DecodeBase(from io.Reader) (*Base, error) {
	decoder := gob.NewDecoder(bufio.NewReader(from))
	all, err := decodeSummary(decoder)
	if err != nil {
		return nil, err
	}
	base, now := &Base{files: make(map[string]state, all.Count)}, time.Now()
	for range all.Count {
		var r record
		if err := decoder.Decode(&r); err != nil {
			return nil, fmt.Errorf("read the base of a snapshot: %w", err)
		}
		s := state{mode: fs.FileMode(r.Mode), link: r.Link, size: r.Size, checked: now}
		s.identity = identity{known: r.Known, inode: r.Inode, size: r.Size, mode: r.RawMode,
			second: r.Second, nano: r.Nano}
		copy(s.sum[:], r.Sum)
		base.files[r.Name] = s
	}
	return base, nil
}

func decodeSummary(decoder *gob.Decoder) (all summary, err error) {
	if err = decoder.Decode(&all); err == nil && (all.Count < 0 || all.Count > MaxFiles) {
		err = fmt.Errorf("%w: %d entries", ErrInvalid, all.Count)
	}
	if err != nil {
		err = fmt.Errorf("read the base of a snapshot: %w", err)
	}
	return all, err
}

// BaseBytes is about what the tree of an encoded base takes on a disk.
func BaseBytes(from io.Reader) (int64, error) {
	all, err := decodeSummary(gob.NewDecoder(from))
	return all.Bytes, err
}

// Equal reports whether two bases are of equal trees.
func (b *Base) Equal(other *Base) bool {
	return maps.EqualFunc(b.files, other.files, func(x, y state) bool { return x.equal(y) })
}

// Names are the paths of the tree, folders before what is in them.
func (b *Base) Names() []string { return slices.Sorted(maps.Keys(b.files)) }

// block is what a file system takes at least for an entry.
const block = 4096

func (b *Base) bytes() (total int64) {
	for _, s := range b.files {
		total += block + (s.size+block-1)/block*block
	}
	return total
}
