package segment

import (
	"encoding/binary"
	"errors"
	"math"
)

// maxCount is the largest number of times that a word counts in a chunk.
const maxCount = 255

// list is a word's postings while they are collected: for each row in order a varint of the step
// from the row before, shifted by two bits, and count-1 in these where it is below 3; otherwise
// they are 3, and a varint of count-4 follows.
type list struct {
	data  []byte
	next  uint32 // the row after the last one
	count uint32 // of rows
}

func (l *list) add(row, count uint32) {
	step := uint64(row-l.next) << 2
	if count < 4 {
		l.data = binary.AppendUvarint(l.data, step|uint64(count-1))
	} else {
		l.data = binary.AppendUvarint(l.data, step|3)
		l.data = binary.AppendUvarint(l.data, uint64(count-4))
	}
	l.next = row + 1
	l.count++
}

// Posting says how often a word is in a row.
type Posting struct{ Row, Count uint32 }

var errPostings = errors.New("malformed postings")

// appendPostings reads a list. Rows ascend, and none reaches the limit.
func appendPostings(out []Posting, data []byte, count, limit uint32) ([]Posting, error) {
	next := uint64(0)
	for range count {
		v, n := binary.Uvarint(data)
		if n <= 0 || v > math.MaxUint32<<2 {
			return nil, errPostings
		}
		data = data[n:]
		row, times := next+v>>2, v&3+1
		if times == 4 {
			more, n := binary.Uvarint(data)
			if n <= 0 || more > maxCount-4 {
				return nil, errPostings
			}
			data = data[n:]
			times += more
		}
		if row >= uint64(limit) {
			return nil, errPostings
		}
		out = append(out, Posting{uint32(row), uint32(times)})
		next = row + 1
	}
	if len(data) > 0 {
		return nil, errPostings
	}
	return out, nil
}
