package dir

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"time"
)

// A pack is a file of small objects of one folder, one record behind the other. One writer appends
// to it, and holds a lock on it as long as it may.
//
// A record begins at a multiple of eight bytes. Its head has these numbers. They are little-endian,
// and have four bytes where the list gives no size:
//   - the magic number
//   - the CRC-32 of the rest of the head and of the name
//   - the CRC-32 of the data
//   - the length of the name
//   - the length of the data, eight bytes
//   - the time in nanoseconds since 1970, eight bytes
//
// Then come the name, the data, and zeros. A record without a name ends the pack: all before it is
// on the disk. Beside a pack NAME lies NAME.gone if something of it was deleted: 16 bytes for each,
// its place and the CRC-32 of it.
const (
	packMagic = 0x316b6350 // "Pck1"
	packHead  = 32
	// MaxPacked is the largest object in bytes that lies in a pack: beyond it the sync of a file of
	// its own costs little for each byte.
	MaxPacked = 64 << 10
	// maxPack is the size from which on a pack gets no more records.
	maxPack = 64 << 20
)

// appendRecord adds a record; one without a name ends the pack.
func appendRecord(to []byte, name string, data []byte, at time.Time) []byte {
	start := len(to)
	to = append(to, make([]byte, packHead)...)
	to = append(append(to, name...), data...)
	to = append(to, make([]byte, -len(to)&7)...)
	head := to[start:]
	binary.LittleEndian.PutUint32(head, packMagic)
	binary.LittleEndian.PutUint32(head[8:], crc32.ChecksumIEEE(data))
	binary.LittleEndian.PutUint32(head[12:], uint32(len(name)))
	binary.LittleEndian.PutUint64(head[16:], uint64(len(data)))
	binary.LittleEndian.PutUint64(head[24:], uint64(at.UnixNano()))
	binary.LittleEndian.PutUint32(head[4:], crc32.ChecksumIEEE(head[8:packHead+len(name)]))
	return to
}

// record is where an object lies in a pack.
type record struct {
	name     string
	at       int64 // of its head
	size     int64
	modified time.Time
	sum      uint32
}

func (r record) data() int64 { return r.at + packHead + int64(len(r.name)) }

func (r record) end() int64 { return (r.data() + r.size + 7) &^ 7 }

// errNoRecord means that there is no whole record: behind the last one, in one that is being
// written, or in one that a power cut left.
var errNoRecord = errors.New("no record")

// readRecord reads the head of the record at a place.
func readRecord(pack io.ReaderAt, at int64) (record, error) {
	head := make([]byte, packHead+maxName)
	n, err := pack.ReadAt(head, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return record{}, err
	}
	if n < packHead || binary.LittleEndian.Uint32(head) != packMagic {
		return record{}, errNoRecord
	}
	name, size := int(binary.LittleEndian.Uint32(head[12:])), binary.LittleEndian.Uint64(head[16:])
	if name > n-packHead || name > maxName || size > MaxPacked ||
		crc32.ChecksumIEEE(head[8:packHead+name]) != binary.LittleEndian.Uint32(head[4:]) {
		return record{}, errNoRecord
	}
	return record{
		name: string(head[packHead : packHead+name]), at: at, size: int64(size),
		sum:      binary.LittleEndian.Uint32(head[8:]),
		modified: time.Unix(0, int64(binary.LittleEndian.Uint64(head[24:]))),
	}, nil
}

// maxName is above the longest last part of a key.
const maxName = 256

// whole says whether a record's data are those that were written.
func (r record) whole(pack io.ReaderAt) error {
	data := make([]byte, r.size)
	if n, err := pack.ReadAt(data, r.data()); n < len(data) {
		if errors.Is(err, io.EOF) {
			err = errNoRecord
		}
		return err
	}
	if crc32.ChecksumIEEE(data) != r.sum {
		return errNoRecord
	}
	return nil
}

// scan gives the records from a place on until there is none, where that is, and whether the
// pack ends there. Up to the end of a pack all is on the disk; otherwise a record counts only
// with the data that were written.
func scan(pack io.ReaderAt, from, size int64) (found []record, end int64, sealed bool, err error) {
	last, err := readRecord(pack, max(from, size-packHead))
	if err != nil && !errors.Is(err, errNoRecord) {
		return nil, from, false, err
	}
	if err == nil && last.name == "" {
		found, end, err = records(pack, from, false)
		if err != nil || end == size-packHead { // else it is what an object ends with
			return found, size, true, err
		}
	}
	found, end, err = records(pack, from, true)
	return found, end, false, err
}

// records gives the records from a place on until there is none, or one that
// must be whole and is not.
func records(pack io.ReaderAt, from int64, whole bool) (found []record, end int64, err error) {
	for {
		r, err := readRecord(pack, from)
		if err == nil && r.name != "" && whole {
			err = r.whole(pack)
		}
		if errors.Is(err, errNoRecord) || err == nil && r.name == "" {
			return found, from, nil
		}
		if err != nil {
			return found, from, err
		}
		found = append(found, r)
		from = r.end()
	}
}

// deletedPlaces are the places of what was deleted from a pack, as noted from a place on; -1 for a
// note that a power cut tore.
func deletedPlaces(file io.ReaderAt, from, size int64) (places []int64, err error) {
	data := make([]byte, (size-from)/goneSize*goneSize)
	if n, err := file.ReadAt(data, from); n < len(data) {
		return nil, fmt.Errorf("read what was deleted: %w", err)
	}
	for ; len(data) > 0; data = data[goneSize:] {
		at := int64(-1)
		if crc32.ChecksumIEEE(data[:8]) == binary.LittleEndian.Uint32(data[8:]) {
			at = int64(binary.LittleEndian.Uint64(data))
		}
		places = append(places, at)
	}
	return places, nil
}

const goneSize = 16

// appendGone notes that what lies at a place was deleted. A power cut may have left a part of a
// note: the next begins at a multiple of its size.
func appendGone(file *os.File, places []int64) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	var notes []byte
	for _, at := range places {
		start := len(notes)
		notes = binary.LittleEndian.AppendUint64(notes, uint64(at))
		notes = binary.LittleEndian.AppendUint32(notes, crc32.ChecksumIEEE(notes[start:]))
		notes = append(notes, 0, 0, 0, 0)
	}
	if _, err := file.WriteAt(notes, info.Size()/goneSize*goneSize); err != nil {
		return err
	}
	return file.Sync()
}
