package events_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// hintedSamples are two: tokens 2 to 4 of the first are sampled in turn 0 and 6 in turn 1, token 1
// of the second in turn 2.
var hintedSamples = []storage.Sample{
	{Tokens: make([]int32, 8), Turns: []storage.TurnSpan{{Start: 2, Length: 3, Turn: 0},
		{Start: 6, Length: 1, Turn: 1}}},
	{Tokens: make([]int32, 2), Turns: []storage.TurnSpan{{Start: 1, Length: 1, Turn: 2}}},
}

// TestHintRows: a hint comes to its sample, and is inserted before the first sampled token of its
// turn unless it says where.
func TestHintRows(t *testing.T) {
	said := events.RolloutHinted{Hints: []events.Hint{
		{Start: 3, Length: 2, Text: "a"}, {Start: 6, Length: 1, Text: "b", Tokens: []int32{7}, At: new(5)},
		{Sample: 1, Start: 1, Length: 1, Text: "c"},
	}}
	rows, err := said.Rows(hintedSamples)
	want := [][]storage.Hint{
		{{Turn: 0, Start: 3, Length: 2, At: 2, Text: "a"},
			{Turn: 1, Start: 6, Length: 1, At: 5, Text: "b", Tokens: []int32{7}}},
		{{Turn: 2, Start: 1, Length: 1, At: 1, Text: "c"}},
	}
	if err != nil || !reflect.DeepEqual(rows, want) {
		t.Errorf("got %+v, %v", rows, err)
	}
	if lengths, tokens := said.Lengths(); !reflect.DeepEqual(lengths, []int{2, 1, 1}) || tokens != 4 {
		t.Errorf("lengths %v, %d tokens", lengths, tokens)
	}
}

// TestHintsThatDoNotFit: a hint about other tokens than sampled ones of one turn is refused,
// whatever its numbers are.
func TestHintsThatDoNotFit(t *testing.T) {
	right := events.Hint{Start: 2, Length: 3, Text: "a"}
	with := func(change func(*events.Hint)) []events.Hint {
		h := right
		change(&h)
		return []events.Hint{h}
	}
	const most = int(^uint(0) >> 1)
	for want, list := range map[string][]events.Hint{
		"sample 2: the rollout has 2 samples":   with(func(h *events.Hint) { h.Sample = 2 }),
		"sample -1":                             with(func(h *events.Hint) { h.Sample = -1 }),
		"3 tokens from token 8":                 with(func(h *events.Hint) { h.Start = 8 }),
		"3 tokens from token -1":                with(func(h *events.Hint) { h.Start = -1 }),
		"0 tokens from token 2":                 with(func(h *events.Hint) { h.Length = 0 }),
		"tokens from token 9223372036854775807": with(func(h *events.Hint) { h.Start, h.Length = most, most }),
		"9223372036854775807 tokens":            with(func(h *events.Hint) { h.Length = most }),
		"tokens 1 to 3 of sample 0 are not all": with(func(h *events.Hint) { h.Start = 1 }),
		"tokens 2 to 6 of sample 0 are not all": with(func(h *events.Hint) { h.Length = 5 }),
		"a text of 0 bytes":                     with(func(h *events.Hint) { h.Text = "" }),
		"a text of 4098 bytes": with(
			func(h *events.Hint) { h.Text = strings.Repeat("é", events.MaxHintText/2+1) }),
		"1025 tokens to insert":              with(func(h *events.Hint) { h.Tokens = make([]int32, 1025) }),
		"token id -4":                        with(func(h *events.Hint) { h.Tokens = []int32{-4} }),
		"at 3: want 0 to":                    with(func(h *events.Hint) { h.At = new(3) }),
		"at -1: want 0 to":                   with(func(h *events.Hint) { h.At = new(-1) }),
		"17 hints (limit 16)":                make([]events.Hint, 17),
		"hint 1: its span begins before":     {right, {Start: 4, Length: 1, Text: "b"}},
		"hint 1: its span begins before the": {{Sample: 1, Start: 1, Length: 1, Text: "b"}, right},
	} {
		if rows, err := (events.RolloutHinted{Hints: list}).Rows(hintedSamples); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, %v", want, rows, err)
		}
	}
}

// TestSpanLogprobs: the first token of a span may have any log-probability, and what no
// teacher says is no number.
func TestSpanLogprobs(t *testing.T) {
	data := events.PackLogprobs([][]float32{{-0.5, -1}, {-2}})
	lists, err := events.UnpackSpans(data, []int{2, 1})
	if err != nil {
		t.Fatal(err)
	}
	hints := []storage.Hint{{Start: 1, Length: 2}, {Start: 4, Length: 1}}
	got := events.SpanLogprobs(6, hints, lists)
	for i, want := range []float32{0, -0.5, -1, 0, -2, 0} {
		if want == 0 && got[i] == got[i] || want != 0 && got[i] != want {
			t.Errorf("token %d has %g, want %g", i, got[i], want)
		}
	}
	for i, v := range events.SpanLogprobs(6, hints, nil) {
		if v == v {
			t.Errorf("nobody has spoken, and token %d has %g", i, v)
		}
	}
	for name, wrong := range map[string][]float32{"above 0": {0.5, -1, -1}, "too few": {-1, -1}} {
		if _, err := events.UnpackSpans(events.PackLogprobs([][]float32{wrong}), []int{2, 1}); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
