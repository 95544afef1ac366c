package inference

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage/tokencheck"
)

// Column is numbers beside the tokens of a turn, as a .npy file with a row for
// each token that Spans name.
//
//	routed_experts  uint8 or uint16 [rows, layers, top_k]
//	top_logprobs    [rows, k] of (id int32, logprob float32), the likeliest first, filled up with -1 and -inf
//	sampling_mask   int32 [n]: how many rows, how many ids each of them has, and the ids
type Column struct {
	Name  string
	Spans []ColumnSpan
	File  []byte
}

// ColumnSpan says that the tokens from Start on, of prompt and answer together,
// have the rows from Row on.
type ColumnSpan struct{ Start, Length, Row int }

// tokenColumns is what an answer says of its tokens beside what they are. Lists are as long as the
// answer; an entry that is nil says nothing.
type tokenColumns struct {
	tops    [][]topEntry
	masks   [][]int32
	experts []expertRows
	lacks   []string // token columns of which something is wrong or missing
}

// topEntry is a token that was likely in the place of a sampled one.
type topEntry struct {
	id      int32
	logprob float32
}

// columnRequest is what an answer was asked for beside its tokens.
type columnRequest struct {
	want *runfile.TokenColumns
	// prompt is how many tokens the prompt has, and from the first of them whose experts were
	// asked for; below 0 none were.
	prompt, from int
}

// Columns are the token columns of a turn, by what was asked for, and the names of those that are
// missing for tokens of which they should be there. ids are the tokens of the turn, behind a prompt
// of so many. routed is for answers to messages, which say the experts of all tokens: of so many
// they are known; below 0 they were not asked for.
func (r *Response) Columns(want *runfile.TokenColumns, prompt int, ids []int32,
	routed int) (columns []Column, lacks []string) {
	if want == nil {
		return nil, nil
	}
	b := r.beside
	if b == nil {
		b = r.readBeside(columnRequest{want: want, prompt: prompt, from: routed}, ids)
	}
	for _, c := range []Column{b.expertColumn(want), b.topColumn(want, prompt), b.maskColumn(prompt)} {
		if len(c.Spans) > 0 {
			columns = append(columns, c)
		}
	}
	return columns, slices.Clone(b.lacks)
}

// readBeside reads what an answer has beside its tokens. What does not fit them is left out.
func (r *Response) readBeside(a columnRequest, ids []int32) *tokenColumns {
	b := &tokenColumns{tops: make([][]topEntry, len(ids)), masks: make([][]int32, len(ids))}
	if len(r.Choices) != 1 || len(ids) == 0 || a.want == nil {
		return b
	}
	choice := &r.Choices[0]
	if a.want.TopLogprobs > 0 && !b.readTops(choice.tops(), ids, a.want.TopLogprobs) {
		b.lack(runfile.ColumnTopLogprobs)
	}
	if a.want.SamplingMask && !b.readMasks(choice.masks(), ids) {
		b.lack(runfile.ColumnSamplingMask)
	}
	if a.want.RoutedExperts != nil {
		if choice.MetaInfo.RoutedExperts == nil {
			choice.MetaInfo.RoutedExperts = r.SGLExt.RoutedExperts
		}
		rows, err := choice.experts(*a.want.RoutedExperts, a, a.prompt+len(ids))
		if err != nil {
			b.lack(runfile.ColumnRoutedExperts)
		} else {
			b.experts = []expertRows{rows}
		}
	}
	return b
}

func (b *tokenColumns) lack(name string) {
	if !slices.Contains(b.lacks, name) {
		b.lacks = append(b.lacks, name)
	}
}

// covered is the first token behind those whose experts are there, or known where there are none.
func (b *tokenColumns) covered(known int) int {
	for _, rows := range b.experts {
		known = max(known, rows.start+len(rows.known))
	}
	return known
}

// follow adds what the rest of an answer says.
func (b *tokenColumns) follow(rest *tokenColumns) {
	b.tops, b.masks, b.experts = append(b.tops, rest.tops...), append(b.masks, rest.masks...),
		append(b.experts, rest.experts...)
	for _, name := range rest.lacks {
		b.lack(name)
	}
}

// tops are the likeliest tokens in each place, as far as the server names them by ids.
func (c *Choice) tops() (list [][]topEntry) {
	if triples := c.MetaInfo.OutputTopLogprobs; triples.lists != nil {
		for _, place := range triples.lists {
			entries := []topEntry{}
			for _, e := range place {
				if !e.there {
					return nil
				}
				entries = append(entries, topEntry{e.id, e.logprob})
			}
			list = append(list, entries)
		}
		return list
	}
	for _, place := range c.Logprobs.Content {
		entries := []topEntry{}
		for _, e := range place.Top {
			id, named := e.id()
			if !named || e.Logprob == nil {
				return nil
			}
			entries = append(entries, topEntry{id, float32(*e.Logprob)})
		}
		list = append(list, entries)
	}
	return list
}

// id is the token of an entry, where the server names it by its id.
func (e topLogprob) id() (id int32, named bool) {
	for _, given := range []*int32{e.TokenID, e.ID} {
		if given != nil {
			return *given, true
		}
	}
	text, is := strings.CutPrefix(e.Token, "token_id:")
	n, err := strconv.ParseInt(text, 10, 32)
	return int32(n), is && err == nil
}

// readTops takes the likeliest tokens of each place. It is false where there are none, or they are
// no log-probabilities of different tokens.
func (b *tokenColumns) readTops(list [][]topEntry, ids []int32, k int) bool {
	if len(list) != len(ids) {
		return false
	}
	tops := make([][]topEntry, len(ids))
	for i, entries := range list {
		if len(entries) > 2*k+1 { // the sampled token may be there, too, and some servers say it twice
			return false
		}
		sum := 0.0
		for _, e := range entries {
			if e.id < 0 || !(e.logprob <= tokencheck.Rounding) {
				return false
			}
			if tokencheck.None(e.logprob) ||
				slices.ContainsFunc(tops[i], func(o topEntry) bool { return o.id == e.id }) {
				continue
			}
			sum += math.Exp(float64(e.logprob))
			tops[i] = append(tops[i], topEntry{e.id, min(e.logprob, 0)})
		}
		if sum > 1+tokencheck.Rounding*float64(len(entries)) || len(tops[i]) == 0 {
			return false
		}
		slices.SortFunc(tops[i], func(x, y topEntry) int {
			return cmp.Or(cmp.Compare(y.logprob, x.logprob),
				cmp.Compare(x.id, y.id))
		})
		tops[i] = tops[i][:min(len(tops[i]), k)]
	}
	b.tops = tops
	return true
}

// masks are the tokens that were left in each place.
func (c *Choice) masks() [][]int32 {
	if c.SamplingMask.lists != nil {
		return c.SamplingMask.lists
	}
	return c.MetaInfo.SamplingMask.lists
}

// readMasks takes the tokens that were left in each place. It is false where there are none, or the
// sampled token is not among them.
func (b *tokenColumns) readMasks(list [][]int32, ids []int32) bool {
	if len(list) != len(ids) {
		return false
	}
	masks := make([][]int32, len(ids))
	for i, left := range list {
		left = slices.Clone(left)
		slices.Sort(left)
		if _, found := slices.BinarySearch(left, ids[i]); !found || left[0] < 0 ||
			len(slices.Compact(left)) != len(list[i]) {
			return false
		}
		masks[i] = left
	}
	b.masks = masks
	return true
}

// spans are the stretches of places that are known.
func spans(first, places int, known func(int) bool) (list []ColumnSpan, rows int) {
	for i := range places {
		if !known(i) {
			continue
		}
		if n := len(list); n > 0 && list[n-1].Start+list[n-1].Length == first+i {
			list[n-1].Length++
		} else {
			list = append(list, ColumnSpan{Start: first + i, Length: 1, Row: rows})
		}
		rows++
	}
	return list, rows
}

// Kinds of numbers, as files name them.
const (
	topKind  = "[('id', '<i4'), ('logprob', '<f4')]"
	maskKind = "'<i4'"
)

func (b *tokenColumns) topColumn(want *runfile.TokenColumns, prompt int) Column {
	c := Column{Name: runfile.ColumnTopLogprobs}
	var rows int
	if c.Spans, rows = spans(prompt, len(b.tops), func(i int) bool { return b.tops[i] != nil }); rows == 0 {
		return c
	}
	file := newNPY(topKind, rows, want.TopLogprobs)
	for _, entries := range b.tops {
		if entries == nil {
			continue
		}
		for k := range want.TopLogprobs {
			e := topEntry{-1, float32(math.Inf(-1))}
			if k < len(entries) {
				e = entries[k]
			}
			file.put32(uint32(e.id))
			file.put32(math.Float32bits(e.logprob))
		}
	}
	c.File = file.data
	return c
}

func (b *tokenColumns) maskColumn(prompt int) Column {
	c := Column{Name: runfile.ColumnSamplingMask}
	var rows int
	if c.Spans, rows = spans(prompt, len(b.masks), func(i int) bool { return b.masks[i] != nil }); rows == 0 {
		return c
	}
	ids := 0
	for _, left := range b.masks {
		ids += len(left)
	}
	file := newNPY(maskKind, 1+rows+ids)
	file.put32(uint32(rows))
	for _, left := range b.masks {
		if left != nil {
			file.put32(uint32(len(left)))
		}
	}
	for _, left := range b.masks {
		for _, id := range left {
			file.put32(uint32(id))
		}
	}
	c.File = file.data
	return c
}

// lists is a list of lists; none where the answer has anything else there, of
// which the turn is as good.
type lists[T any] struct{ lists [][]T }

// UnmarshalJSON has no error.
func (l *lists[T]) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &l.lists) != nil {
		l.lists = nil
	}
	return nil
}

// packed are bytes in base64; nil where the answer has anything else there.
type packed []byte

// UnmarshalJSON has no error.
func (p *packed) UnmarshalJSON(data []byte) error {
	*p = nil
	if len(data) < 2 || data[0] != '"' {
		return nil
	}
	text := data[1 : len(data)-1]
	if slices.Contains(text, '\\') { // some encoders write \/
		var plain string
		if json.Unmarshal(data, &plain) != nil {
			return nil
		}
		text = []byte(plain)
	}
	read := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	if n, err := base64.StdEncoding.Strict().Decode(read, text); err == nil {
		*p = read[:n]
	}
	return nil
}
