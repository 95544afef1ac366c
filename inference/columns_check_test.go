package inference

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
)

// TestCheckColumn: what Columns makes passes, and no change of it does that leads beyond its rows,
// its model or its tokens.
func TestCheckColumn(t *testing.T) {
	want := &runfile.TokenColumns{RoutedExperts: &runfile.RoutedExperts{Layers: 1, TopK: 2, Experts: 8},
		TopLogprobs: 2, SamplingMask: true}
	ids, prompt := []int32{7, 9}, 3
	made := func() map[string]Column {
		b := &tokenColumns{
			tops: [][]topEntry{{{7, -1}, {8, -2}}, {{9, -1}}}, masks: [][]int32{{7}, {8, 9}},
			experts: []expertRows{{start: 0, known: []bool{true, true, false, true}, data: []byte{1, 2, 3, 4, 5, 6}}},
		}
		return map[string]Column{
			runfile.ColumnTopLogprobs: b.topColumn(want, prompt), runfile.ColumnSamplingMask: b.maskColumn(prompt),
			runfile.ColumnRoutedExperts: b.expertColumn(want),
		}
	}
	for name, c := range made() {
		if err := CheckColumn(want, c, prompt, ids); err != nil {
			t.Errorf("%s as it is made: %v", name, err)
		}
		if err := CheckColumn(&runfile.TokenColumns{}, c, prompt, ids); err == nil {
			t.Errorf("%s passes in a run that asks for none", name)
		}
		for cut := range len(c.File) {
			short := c
			if short.File = c.File[:cut]; CheckColumn(want, short, prompt, ids) == nil {
				t.Errorf("%s of %d bytes passes with %d", name, len(c.File), cut)
			}
		}
		long := c
		if long.File = append(slices.Clone(c.File), make([]byte, 64)...); CheckColumn(want, long, prompt, ids) == nil {
			t.Errorf("%s passes with bytes behind it", name)
		}
		for change, spans := range map[string][]ColumnSpan{
			"rows that there are not": {{Start: prompt, Length: 1, Row: 99}}, "more rows": {{Start: prompt, Length: 9}},
			"a row below 0":           {{Start: prompt, Length: 1, Row: -1}},
			"a token behind the last": {{Start: prompt + 2, Length: 1}}, "no token": {{Start: prompt}},
			"a token before the first": {{Start: -1, Length: 1}},
		} {
			other := c
			if other.Spans = spans; CheckColumn(want, other, prompt, ids) == nil {
				t.Errorf("%s passes with %s", name, change)
			}
		}
	}
	end := func(c Column, number uint32) Column {
		c.File = bytes.Clone(c.File)
		binary.LittleEndian.PutUint32(c.File[len(c.File)-4:], number)
		return c
	}
	for name, c := range map[string]Column{
		"an expert that there is not": end(made()[runfile.ColumnRoutedExperts], 8<<24),
		"a log-probability above 0":   end(made()[runfile.ColumnTopLogprobs], math.Float32bits(0.5)),
		"no number":                   end(made()[runfile.ColumnTopLogprobs], math.Float32bits(float32(math.NaN()))),
		"a mask without its token":    end(made()[runfile.ColumnSamplingMask], 10),
		"likely tokens of the prompt": {Name: runfile.ColumnTopLogprobs,
			File: made()[runfile.ColumnTopLogprobs].File, Spans: []ColumnSpan{{Start: 0, Length: 1}}},
		"the file of another kind": {Name: runfile.ColumnTopLogprobs,
			File: made()[runfile.ColumnRoutedExperts].File, Spans: []ColumnSpan{{Start: prompt, Length: 1}}},
		"a mask of as many as one likes": {Name: runfile.ColumnSamplingMask, File: newNPY(maskKind, 1).data,
			Spans: []ColumnSpan{{Start: prompt, Length: 1}}},
	} {
		if CheckColumn(want, c, prompt, ids) == nil {
			t.Errorf("%s passes", name)
		}
	}
}
