package storage

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// packBits makes an array of the booleans of lists that follow each other.
func packBits(lists [][]bool, total int) arrow.ArrayData {
	packed := make([]byte, (total+7)/8)
	at := 0
	for _, list := range lists {
		for _, value := range list {
			if value {
				packed[at/8] |= 1 << (at % 8)
			}
			at++
		}
	}
	return array.NewData(arrow.FixedWidthTypes.Boolean, total,
		[]*memory.Buffer{nil, memory.NewBufferBytes(packed)}, nil, 0, 0)
}

// unpacked holds the eight booleans of each byte.
var unpacked = func() (table [256][8]bool) {
	for value := range table {
		for bit := range table[value] {
			table[value][bit] = value>>bit&1 == 1
		}
	}
	return table
}()

// unpackBits gives the first count bits.
func unpackBits(packed []byte, count int) []bool {
	all := make([]bool, (count+7)/8*8)
	for i := range len(all) / 8 {
		*(*[8]bool)(all[8*i:]) = unpacked[packed[i]]
	}
	return all[:count:count]
}
