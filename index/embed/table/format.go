package table

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/index/words"
)

// A table's file is the magic, the size of the header and the header in JSON, the words with a line
// feed behind each, the scales in little-endian, and the rows.
const (
	magic  = "RONDOEMB"
	format = 1 // also of how a bag is weighed

	maxHeader     = 1 << 20
	maxRows       = 1 << 20
	maxDimensions = 4096
)

// Encode gives the table's file.
func (t *Table) Encode() ([]byte, error) {
	h := t.Header
	h.Format, h.WordsForm = format, words.Version
	header, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("header of the table: %w", err)
	}
	file := binary.LittleEndian.AppendUint32([]byte(magic), uint32(len(header)))
	file = append(file, header...)
	for _, w := range t.words {
		file = append(append(file, w...), '\n')
	}
	for _, s := range t.scales {
		file = binary.LittleEndian.AppendUint16(file, s)
	}
	for _, x := range t.rows {
		file = append(file, byte(x))
	}
	return file, nil
}

var errShort = errors.New("the file is too short")

// Decode reads a table's file. It does not keep it.
func Decode(file []byte) (*Table, error) {
	t, err := decode(file)
	if err != nil {
		return nil, fmt.Errorf("table of words: %w", err)
	}
	return t, nil
}

func decode(file []byte) (*Table, error) {
	rest, ok := bytes.CutPrefix(file, []byte(magic))
	if !ok {
		return nil, errors.New("the file does not begin as one")
	}
	if len(rest) < 4 {
		return nil, errShort
	}
	size := binary.LittleEndian.Uint32(rest)
	rest = rest[4:]
	if size > maxHeader || int(size) > len(rest) {
		return nil, errShort
	}
	var h Header
	if err := json.Unmarshal(rest[:size], &h); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	rest = rest[size:]
	switch {
	case h.Format != format || h.WordsForm != words.Version:
		return nil, fmt.Errorf("form %d of words' form %d, want %d of %d", h.Format, h.WordsForm, format, words.Version)
	case h.Dimensions < 1 || h.Dimensions > maxDimensions || h.Words < 0 || h.Words > maxRows:
		return nil, fmt.Errorf("%d words of %d dimensions", h.Words, h.Dimensions)
	}
	list := make([]string, 0, min(h.Words, len(rest)))
	for range h.Words {
		w, after, ok := bytes.Cut(rest, []byte("\n"))
		if !ok {
			return nil, errShort
		}
		list, rest = append(list, string(w)), after
		if n := len(list); n > 1 && list[n-2] >= list[n-1] {
			return nil, fmt.Errorf("word %d is out of order", n-1)
		}
	}
	if want := int64(h.Words) * int64(2+h.Dimensions); int64(len(rest)) != want {
		return nil, fmt.Errorf("%d bytes of rows, want %d", len(rest), want)
	}
	t := empty(list, h.Dimensions)
	t.Trained = h.Trained
	for i := range t.scales {
		t.scales[i] = binary.LittleEndian.Uint16(rest[2*i:])
	}
	for i, x := range rest[2*h.Words:] {
		t.rows[i] = int8(x)
	}
	return t, nil
}

// empty is a table of zeros. Its words share one string, as thousands of small ones
// would burden the collector.
func empty(list []string, dimensions int) *Table {
	rows := len(list)
	t := &Table{
		Header: Header{Dimensions: dimensions, Words: len(list)}, words: make([]string, len(list)),
		scales: make([]uint16, rows), rows: make([]int8, rows*dimensions), place: make(map[string]int32, len(list)),
	}
	all := strings.Join(list, "")
	for i, w := range list {
		t.words[i], all = all[:len(w)], all[len(w):]
		t.place[t.words[i]] = int32(i)
	}
	return t
}
