package inference

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/rondo-rl/rondo/events/runfile"
)

// The experts that a mixture's routers chose come as
//
//	vLLM    choices[].routed_experts: a .npy file [rows, layers, top_k] of uint8, uint16 or int32, in base64; asked from sampling_params.routed_experts_prompt_start on
//	SGLang  meta_info.routed_experts: little-endian int32 [rows, layers, top_k] without its shape, in base64; asked from routed_experts_start_len on
//
// The last token sampled has been through no layer, so rows end before it.

// widestExpert is the most bytes in which a server writes the number of an expert.
const widestExpert = 4

// expertRows are the experts of the tokens from start on, in the width of the column.
type expertRows struct {
	start int
	known []bool // of each token
	data  []byte
}

// errExperts means that what a server says of experts is not of the tokens.
var errExperts = errors.New("routed experts do not fit the tokens")

// from is the first token whose experts are asked for, of a prompt that may have an answer of most
// tokens, where known is the first that nothing is known of. It is so late that the answer is not
// too long; below 0 where it would be anyway.
func expertsFrom(want runfile.RoutedExperts, width, known, prompt, most int) int {
	rows := want.Rows(width)
	from := min(max(known, prompt+most-rows), prompt-1)
	if prompt+most-from > rows {
		return -1
	}
	return from
}

// experts reads those of a choice, whose prompt and answer have so many tokens together.
func (c *Choice) experts(want runfile.RoutedExperts, a columnRequest, tokens int) (expertRows, error) {
	if a.from < 0 {
		return expertRows{}, fmt.Errorf("%w: they were not asked for", errExperts)
	}
	data, width := []byte(c.MetaInfo.RoutedExperts), widestExpert
	signed := true
	if c.RoutedExperts != nil {
		array, err := readNPY(c.RoutedExperts)
		if err != nil {
			return expertRows{}, fmt.Errorf("%w: %w", errExperts, err)
		}
		if len(array.shape) != 3 || array.shape[1] != want.Layers || array.shape[2] != want.TopK {
			return expertRows{}, fmt.Errorf("%w: an array of shape %v", errExperts, array.shape)
		}
		data, width, signed = array.data, array.width, array.signed
	}
	row := want.Layers * want.TopK * width
	if len(data) == 0 || len(data)%row != 0 {
		return expertRows{}, fmt.Errorf("%w: %d bytes", errExperts, len(data))
	}
	start, err := expertStart(c.MetaInfo.RoutedExpertsStart, len(data)/row, a.from, tokens)
	if err != nil {
		return expertRows{}, err
	}
	return narrow(want, expertRows{start: a.from, data: data[(a.from-start)*row:]}, width, signed)
}

// expertStart is the token of the first of some rows: the one from which on they were asked for, or
// the first of all, where the server does not know how to leave any out.
func expertStart(said *int, rows, from, tokens int) (int, error) {
	for _, start := range []int{from, 0} {
		if rows == tokens-1-start && (said == nil || *said == start) {
			return start, nil
		}
	}
	return 0, fmt.Errorf("%w: %d rows of %d tokens, asked from token %d on", errExperts, rows, tokens, from)
}

// narrow takes rows over in the width of the column. A row of nothing but zeros or of numbers below
// 0 was never written: nothing is known of its token.
func narrow(want runfile.RoutedExperts, r expertRows, width int, signed bool) (expertRows, error) {
	numbers := want.Layers * want.TopK
	rows := len(r.data) / (numbers * width)
	out := make([]byte, 0, rows*numbers*want.Width())
	r.known = make([]bool, rows)
	for i := range rows {
		blank, set := want.TopK > 1, true
		for k := range numbers {
			id := number(r.data[(i*numbers+k)*width:], width, signed)
			if id < 0 {
				set, id = false, 0
			}
			if id >= int64(want.Experts) {
				return r, fmt.Errorf("%w: expert %d of %d", errExperts, id, want.Experts)
			}
			blank = blank && id == 0
			if out = append(out, byte(id)); want.Width() == 2 {
				out = append(out, byte(id>>8))
			}
		}
		if r.known[i] = set && !blank; !r.known[i] {
			out = out[:len(out)-numbers*want.Width()]
		}
	}
	r.data = out
	return r, nil
}

func number(data []byte, width int, signed bool) int64 {
	switch {
	case width == 1:
		return int64(data[0])
	case width == 2 && signed:
		return int64(int16(binary.LittleEndian.Uint16(data)))
	case width == 2:
		return int64(binary.LittleEndian.Uint16(data))
	}
	return int64(int32(binary.LittleEndian.Uint32(data)))
}

// expertColumn puts the rows of an answer's parts one behind the other. What a later part says of a
// token again does not count.
func (b *tokenColumns) expertColumn(want *runfile.TokenColumns) Column {
	c := Column{Name: runfile.ColumnRoutedExperts}
	if want.RoutedExperts == nil {
		return c
	}
	row := want.RoutedExperts.Layers * want.RoutedExperts.TopK * want.RoutedExperts.Width()
	rows, next := 0, 0
	var all [][]byte
	for _, part := range b.experts {
		skip := 0 // known rows that an earlier part has
		list, _ := spans(part.start, len(part.known), func(i int) bool {
			if part.known[i] && part.start+i < next {
				skip++
			}
			return part.known[i] && part.start+i >= next
		})
		for i := range list {
			list[i].Row += rows
		}
		c.Spans = append(c.Spans, list...)
		all = append(all, part.data[skip*row:])
		rows += (len(part.data) / row) - skip
		next = max(next, part.start+len(part.known))
	}
	if rows == 0 {
		return c
	}
	file := newNPY(expertKind(*want.RoutedExperts), rows, want.RoutedExperts.Layers, want.RoutedExperts.TopK)
	file.data = append(file.data, bytes.Join(all, nil)...)
	c.File = file.data
	return c
}

// expertKind is the kind of numbers in a column of experts.
func expertKind(want runfile.RoutedExperts) string {
	if want.Width() == 2 {
		return "'<u2'"
	}
	return "'|u1'"
}

// npy is a file of NumPy's with one array.
type npy struct {
	data   []byte
	shape  []int
	width  int
	signed bool
}

const npyMagic = "\x93NUMPY"

// newNPY begins a file; what follows is appended to it. The same array gives the same bytes.
func newNPY(kind string, shape ...int) *npy {
	header := "{'descr': " + kind + ", 'fortran_order': False, 'shape': ("
	for _, n := range shape {
		header += strconv.Itoa(n) + ", "
	}
	if header = strings.TrimSuffix(header, " "); len(shape) > 1 {
		header = strings.TrimSuffix(header, ",")
	}
	header += "), }"
	const before, boundary = len(npyMagic) + 4, 64
	header += strings.Repeat(" ", boundary-1-(before+len(header))%boundary) + "\n"
	data := append([]byte(npyMagic), 1, 0)
	return &npy{data: append(binary.LittleEndian.AppendUint16(data, uint16(len(header))), header...)}
}

func (f *npy) put32(v uint32) { f.data = binary.LittleEndian.AppendUint32(f.data, v) }

// npyHeader is what NumPy writes, and nothing else that Python could read.
var npyHeader = regexp.MustCompile(`^\{'descr': '(\|u1|<u2|<i2|<i4)', 'fortran_order': False, 'shape': \((\d{1,9}), (\d{1,9}), (\d{1,9})\), \} *\n$`)

// npyWidths are the kinds of numbers that experts come in: their bytes, and
// whether they may be below 0.
var npyWidths = map[string]struct {
	width  int
	signed bool
}{"|u1": {1, false}, "<u2": {2, false}, "<i2": {2, true}, "<i4": {4, true}}

// readNPY reads an array of three dimensions of whole numbers.
func readNPY(data []byte) (npy, error) {
	rest, is := bytes.CutPrefix(data, []byte(npyMagic))
	if !is || len(rest) < 4 || rest[0] != 1 {
		return npy{}, errors.New("no .npy file of version 1")
	}
	size := int(binary.LittleEndian.Uint16(rest[2:]))
	rest = rest[4:]
	if size > len(rest) {
		return npy{}, errors.New("a .npy file without its header")
	}
	said := npyHeader.FindStringSubmatch(string(rest[:size]))
	if said == nil {
		return npy{}, fmt.Errorf("a .npy file of something else: %.100q", rest[:size])
	}
	kind := npyWidths[said[1]]
	f := npy{data: rest[size:], width: kind.width, signed: kind.signed}
	total := int64(kind.width)
	for _, text := range said[2:] {
		n, _ := strconv.Atoi(text) // nine digits at most
		f.shape = append(f.shape, n)
		if total *= int64(n); total > int64(len(f.data)) {
			return npy{}, fmt.Errorf("a .npy file of %v with %d bytes of numbers", f.shape, len(f.data))
		}
	}
	if total != int64(len(f.data)) {
		return npy{}, fmt.Errorf("a .npy file of %v with %d bytes of numbers", f.shape, len(f.data))
	}
	return f, nil
}
