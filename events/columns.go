package events

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// A packed body holds a payload's tokens behind its JSON document instead of in it, where a
// number takes up to 12 bytes:
//
//	magic      4 bytes, the last of them the layout's version
//	document   its length as a uvarint, and the JSON without prompt_delta, token_ids and logprobs
//	turns      how many, as a uvarint; of each the lengths of prompt_delta, token_ids and logprobs, as uvarints
//	signs      a byte, 1 where the frame has the signs of the log-probabilities; 0 where all are negative
//	columns    one zstd frame
//
// The frame holds the ids of all turns (prompt_delta, then token_ids) as little-endian uint32, in
// four planes, the lowest bytes first, and then their log-probabilities as float32: the lowest 7
// bits of the mantissas without a gap, the middle bytes and the upper bytes of the mantissas, the
// exponents, and the signs, 8 in a byte, 1 for negative. Planes of ids, mantissas, exponents and
// signs are blocks of their own, because what is compressed well must not stand among random bits.

var (
	packedMagic = []byte{0, 'R', 'T'} // and the layout
	layout      = byte(1)
)

const (
	// minPacked is the number of tokens from which a packed body is smaller.
	minPacked = 16
	// maxPacked bounds the tokens of a packed body, and so what a hostile one takes in memory. More
	// of them are written as JSON.
	maxPacked = 4 << 20
	width     = 4 // bytes of an id and of a log-probability
)

// packable is a payload with tokens. bare is a copy without them.
type packable interface {
	lists() []tokenLists
	bare() any
}

// tokenLists are the lists of one answer.
type tokenLists struct {
	prompt, ids *[]int32
	logprobs    *[]float32
}

func (t *TurnSampled) lists() []tokenLists {
	return []tokenLists{{&t.PromptDelta, &t.TokenIDs, &t.Logprobs}}
}

func (p *PieceSampled) lists() []tokenLists {
	return []tokenLists{{new([]int32), &p.TokenIDs, &p.Logprobs}}
}

func (p *PieceSampled) bare() any {
	b := *p
	b.TokenIDs, b.Logprobs = nil, nil
	return b
}

func (t *TurnSampled) bare() any {
	b := *t
	b.PromptDelta, b.TokenIDs, b.Logprobs = nil, nil, nil
	return b
}

func (c *RolloutCopied) lists() (lists []tokenLists) {
	for i := range c.Turns {
		lists = append(lists, c.Turns[i].lists()...)
	}
	return lists
}

func (c *RolloutCopied) bare() any {
	b := RolloutCopied{Turns: make([]TurnSampled, len(c.Turns)), Tools: c.Tools}
	for i := range c.Turns {
		b.Turns[i] = c.Turns[i].bare().(TurnSampled)
	}
	return b
}

// Encode makes the body of a payload: JSON, packed where it holds many tokens.
func Encode(data any) ([]byte, error) {
	var p packable
	switch v := data.(type) {
	case TurnSampled:
		p = &v
	case PieceSampled:
		p = &v
	case RolloutCopied:
		p = &v
	case packable:
		p = v
	default:
		return json.Marshal(data)
	}
	var ids []uint32
	var logprobs []float32
	lists := p.lists()
	lengths := binary.AppendUvarint(nil, uint64(len(lists)))
	for i, t := range lists {
		for _, n := range []int{len(*t.prompt), len(*t.ids), len(*t.logprobs)} {
			lengths = binary.AppendUvarint(lengths, uint64(n))
		}
		for _, list := range [][]int32{*t.prompt, *t.ids} {
			for _, id := range list {
				ids = append(ids, uint32(id))
			}
		}
		for _, l := range *t.logprobs {
			if l-l != 0 {
				return nil, fmt.Errorf("answer %d of %d: log-probability %g", i+1, len(lists), l)
			}
		}
		logprobs = append(logprobs, *t.logprobs...)
	}
	if n := len(ids) + len(logprobs); n < minPacked || n > maxPacked {
		return json.Marshal(data)
	}
	document, err := json.Marshal(p.bare())
	if err != nil {
		return nil, err
	}
	body := binary.AppendUvarint(append(bytes.Clone(packedMagic), layout), uint64(len(document)))
	body = append(append(body, document...), lengths...)
	numbers, signs := split32(logprobs)
	return appendBlocks(append(body, signs), append(planesOf(ids), numbers...)...)
}

// planesOf splits a column in planes, the lowest bytes first.
func planesOf(column []uint32) [][]byte {
	planes := make([][]byte, width)
	for at := range planes {
		for _, v := range column {
			planes[at] = append(planes[at], byte(v>>(8*at)))
		}
	}
	return planes
}

// compressors are costly to make.
var compressors = sync.Pool{New: func() any {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false),
		zstd.WithAllLitEntropyCompression(true), zstd.WithWindowSize(128<<10), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(err) // the options are wrong
	}
	return e
}}

var decompressor = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderMaxWindow(8<<20), zstd.WithDecoderLowmem(true))
	if err != nil {
		panic(err)
	}
	return d
})

// appendBlocks appends a frame of blocks.
func appendBlocks(body []byte, blocks ...[]byte) ([]byte, error) {
	out := bytes.NewBuffer(body)
	e := compressors.Get().(*zstd.Encoder)
	defer compressors.Put(e)
	e.Reset(out)
	for _, block := range blocks {
		if _, err := e.Write(block); err != nil {
			return nil, err
		}
		if err := e.Flush(); err != nil {
			return nil, err
		}
	}
	err := e.Close()
	e.Reset(nil) // it must not keep the body
	return out.Bytes(), err
}

// errColumns: a packed body that nobody wrote.
var errColumns = fmt.Errorf("%w: packed tokens", ErrMalformed)

// Document is the JSON of a body, of a packed one without its tokens.
func Document(body []byte) ([]byte, error) {
	document, _, err := split(body)
	return document, err
}

// split takes a packed body apart; columns is nil where the body is JSON.
func split(body []byte) (document, columns []byte, err error) {
	rest, packed := bytes.CutPrefix(body, packedMagic)
	if !packed {
		return body, nil, nil
	}
	if len(rest) == 0 || rest[0] != layout {
		return nil, nil, fmt.Errorf("%w: of no known layout", errColumns)
	}
	rest = rest[1:]
	n, used := binary.Uvarint(rest)
	if used <= 0 || n >= uint64(len(rest)-used) {
		return nil, nil, fmt.Errorf("%w: a document of %d bytes in a body of %d", errColumns, n, len(body))
	}
	rest = rest[used:]
	return rest[:n], rest[n:], nil
}

// Decode reads a body into a payload.
func Decode(body []byte, payload any) error {
	document, columns, err := split(body)
	if err == nil {
		err = json.Unmarshal(document, payload)
	}
	if p, ok := payload.(packable); ok && err == nil && columns != nil {
		return readColumns(columns, p.lists())
	}
	return err
}

// readColumns puts the tokens of a packed body into the lists of its answers.
func readColumns(columns []byte, turns []tokenLists) error {
	next := func() (n uint64) {
		n, used := binary.Uvarint(columns)
		if used <= 0 {
			return math.MaxUint64
		}
		columns = columns[used:]
		return n
	}
	if n := next(); n != uint64(len(turns)) {
		return fmt.Errorf("%w: of %d turns, the document has %d", errColumns, n, len(turns))
	}
	lengths, ids, logprobs := make([][3]int, len(turns)), 0, 0
	for i, t := range turns {
		if *t.prompt != nil || *t.ids != nil || *t.logprobs != nil {
			return fmt.Errorf("%w: the document has tokens, too", errColumns)
		}
		for k := range lengths[i] {
			n := next()
			if n > maxPacked {
				return fmt.Errorf("%w: a column of %d (limit %d)", errColumns, n, maxPacked)
			}
			lengths[i][k] = int(n)
		}
		ids, logprobs = ids+lengths[i][0]+lengths[i][1], logprobs+lengths[i][2]
		if ids+logprobs > maxPacked {
			return fmt.Errorf("%w: more than %d", errColumns, maxPacked)
		}
	}
	signs := next()
	if signs > 1 {
		return fmt.Errorf("%w: neither with signs nor without", errColumns)
	}
	f := floats{n: logprobs, signs: signs == 1}
	size := width*ids + f.size()
	planes, err := decompressor().DecodeAll(columns, make([]byte, 0, size))
	if err == nil && len(planes) != size {
		err = errors.New("fewer than declared")
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errColumns, err)
	}
	idPlanes, logprobPlanes := planes[:width*ids], planes[width*ids:]
	at, atLogprob := 0, 0
	for i, t := range turns {
		*t.prompt, at = readIDs(idPlanes, at, lengths[i][0])
		*t.ids, at = readIDs(idPlanes, at, lengths[i][1])
		if n := lengths[i][2]; n > 0 {
			*t.logprobs = make([]float32, n)
		}
		for k := range *t.logprobs {
			l := f.value(logprobPlanes, atLogprob)
			if l-l != 0 {
				return fmt.Errorf("%w: log-probability %g", errColumns, l)
			}
			(*t.logprobs)[k] = l
			atLogprob++
		}
	}
	return nil
}

// readIDs reads n ids from a place on, and says where the next ones are; nil for none.
func readIDs(planes []byte, at, n int) ([]int32, int) {
	if n == 0 {
		return nil, at
	}
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(fromPlanes(planes, at+i))
	}
	return ids, at + n
}

// fromPlanes is the value with an index of a column.
func fromPlanes(planes []byte, i int) uint32 {
	n := len(planes) / width
	return uint32(planes[i]) | uint32(planes[n+i])<<8 | uint32(planes[2*n+i])<<16 | uint32(planes[3*n+i])<<24
}

// JSON is the event's payload as JSON, with all of its tokens, however the log holds it.
func (e Event) JSON() (json.RawMessage, error) {
	if !bytes.HasPrefix(e.Data, packedMagic) { // no JSON begins with a zero
		return e.Data, nil
	}
	payload := Payload(e.Type)
	if payload == nil {
		return Document(e.Data)
	}
	if err := Decode(e.Data, payload); err != nil {
		return nil, fmt.Errorf("read %s: %w", e.ID, err)
	}
	return json.Marshal(payload)
}
