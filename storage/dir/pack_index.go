package dir

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// packIndex finds the places of a folder's packed objects by digests of their names. It keeps 16
// bytes for each: name, size and time are read where they lie.
type packIndex struct {
	first map[uint64]place
	// more are further places of a digest: of an object that was packed several
	// times, or of another name.
	more map[uint64][]place
}

// place is where a record lies: in the pack of that number, at so many times eight bytes.
type place struct{ pack, eighth uint32 }

// maxPlace is above all offsets that a place can have.
const maxPlace = 8 << 32

func (p place) offset() int64 { return int64(p.eighth) * 8 }

func newPackIndex() packIndex {
	return packIndex{map[uint64]place{}, map[uint64][]place{}}
}

func digestOf(name string) uint64 {
	sum := sha256.Sum256([]byte(name))
	return binary.LittleEndian.Uint64(sum[:])
}

func (x packIndex) add(name string, at place) {
	digest := digestOf(name)
	if _, there := x.first[digest]; there {
		x.more[digest] = append(x.more[digest], at)
		return
	}
	x.first[digest] = at
}

// places are the places where an object of a name may lie.
func (x packIndex) places(name string) []place {
	digest := digestOf(name)
	at, there := x.first[digest]
	if !there {
		return nil
	}
	return append([]place{at}, x.more[digest]...)
}

// remove says whether the place was there.
func (x packIndex) remove(name string, at place) bool {
	places := x.places(name)
	i := slices.Index(places, at)
	if i < 0 {
		return false
	}
	x.set(digestOf(name), slices.Delete(places, i, i+1))
	return true
}

// removePack takes out all places in a pack.
func (x packIndex) removePack(number uint32) {
	in := func(at place) bool { return at.pack == number }
	for digest, at := range x.first {
		if more := x.more[digest]; in(at) || slices.ContainsFunc(more, in) {
			x.set(digest, slices.DeleteFunc(append([]place{at}, more...), in))
		}
	}
}

func (x packIndex) set(digest uint64, places []place) {
	switch len(places) {
	case 0:
		delete(x.first, digest)
		delete(x.more, digest)
	case 1:
		x.first[digest] = places[0]
		delete(x.more, digest)
	default:
		x.first[digest], x.more[digest] = places[0], places[1:]
	}
}

// all are the places, pack by pack.
func (x packIndex) all() []place {
	places := make([]place, 0, len(x.first)+len(x.more))
	for _, at := range x.first {
		places = append(places, at)
	}
	for _, more := range x.more {
		places = append(places, more...)
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.pack, b.pack), cmp.Compare(a.eighth, b.eighth))
	})
	return places
}
