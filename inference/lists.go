package inference

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strconv"

	"github.com/rondo-rl/rondo/storage/tokencheck"
)

// Lists of an answer that are read no further than it takes to say that they are too long: a list
// of empty objects is 3 bytes each on its way, and a hundred times that in memory.
type (
	choices   []Choice
	toolAsked []ToolCall
)

// UnmarshalJSON reads one choice, and one more.
func (c *choices) UnmarshalJSON(data []byte) error {
	var list [2]element[Choice]
	err := json.Unmarshal(data, &list)
	*c = values(list[:])
	return err
}

// UnmarshalJSON reads MaxToolCalls calls, and one more.
func (c *toolAsked) UnmarshalJSON(data []byte) error {
	var list [MaxToolCalls + 1]element[ToolCall]
	err := json.Unmarshal(data, &list)
	*c = values(list[:])
	return err
}

// element tells an element that a list has from one that it has not.
type element[T any] struct {
	value T
	there bool
}

func (e *element[T]) UnmarshalJSON(data []byte) error {
	e.there = true
	return json.Unmarshal(data, &e.value)
}

func values[T any](list []element[T]) (found []T) {
	for _, e := range list {
		if e.there {
			found = append(found, e.value)
		}
	}
	return found
}

// logprob is a log-probability as servers write it: NaN for what is no number, text included. Of
// one that is too large for float32, infinity: servers write the lowest float64 for none.
type logprob float32

// UnmarshalJSON has no error: the turn is good without its tokens.
func (l *logprob) UnmarshalJSON(data []byte) error {
	v, err := strconv.ParseFloat(string(data), 32)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		v = math.NaN()
	}
	*l = logprob(v)
	return nil
}

// sampledToken is [logprob, token id, text or null]. It is not there when it is anything else. null
// for the log-probability is read as NaN.
type sampledToken struct {
	logprob float32
	id      int32
	there   bool
}

// UnmarshalJSON has no error: the turn is good without its tokens.
func (t *sampledToken) UnmarshalJSON(data []byte) error {
	var list [2]json.RawMessage
	var given *logprob
	var id *int32
	if json.Unmarshal(data, &list) == nil && json.Unmarshal(list[0], &given) == nil &&
		json.Unmarshal(list[1], &id) == nil && id != nil {
		*t = sampledToken{float32(math.NaN()), *id, true}
		if given != nil {
			t.logprob = float32(*given)
		}
	}
	return nil
}

// tokenIDs are the ids of a prompt: of hundreds of thousands, which the decoder reads
// one by one with much ado.
type tokenIDs []int32

// UnmarshalJSON reads a list of whole numbers, or null.
func (t *tokenIDs) UnmarshalJSON(data []byte) (err error) {
	list, ok := digits(data)
	if !ok {
		list, err = tokencheck.ReadIDs(data)
	}
	*t = list
	return err
}

// digits reads a list of whole numbers without white space; ok is false for anything else.
func digits(data []byte) (list []int32, ok bool) {
	if len(data) < 2 || data[0] != '[' || data[len(data)-1] != ']' {
		return nil, false
	}
	rest := data[1 : len(data)-1]
	list = make([]int32, 0, bytes.Count(rest, []byte{','})+1)
	for len(rest) > 0 {
		digits, id := 0, int64(0)
		for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' && digits < 10 {
			id = 10*id + int64(rest[digits]-'0')
			digits++
		}
		end := digits == len(rest)
		if digits == 0 || id > math.MaxInt32 || !end && rest[digits] != ',' {
			return nil, false // white space, a sign, or what is no id
		}
		list = append(list, int32(id))
		if end {
			break
		}
		rest = rest[digits+1:]
	}
	return list, true
}
