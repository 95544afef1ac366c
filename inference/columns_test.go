package inference

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
)

// TestTopLogprobsOfChats: chats name likely tokens by ids as vLLM and llama.cpp do;
// names without ids are a lack.
func TestTopLogprobsOfChats(t *testing.T) {
	want := &runfile.TokenColumns{TopLogprobs: 2}
	for name, c := range map[string]struct {
		entry string
		lacks bool
	}{
		"vLLM":        {`{"token":"token_id:%d","logprob":%g}`, false},
		"llama.cpp":   {`{"token":"a","id":%d,"logprob":%g}`, false},
		"texts alone": {`{"token":"a%d","logprob":%g}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			entry := func(id int, logprob float64) string { return fmt.Sprintf(c.entry, id, logprob) }
			text := `{"choices":[{"token_ids":[7,8],"logprobs":{"content":[{"logprob":-3,"top_logprobs":[` +
				entry(7, -3) + "," + entry(9, -0.6) + "," + entry(4, -1) + `]},` +
				`{"logprob":-0.25,"top_logprobs":[` + entry(8, -0.25) + "," + entry(8, -0.25) + `]}]}}]}`
			var r Response
			if err := json.Unmarshal([]byte(text), &r); err != nil {
				t.Fatal(err)
			}
			columns, lacks := r.Columns(want, 5, []int32{7, 8}, -1)
			if c.lacks {
				if len(columns) > 0 || !slices.Equal(lacks, []string{runfile.ColumnTopLogprobs}) {
					t.Errorf("columns %v, lacks %v", columns, lacks)
				}
				return
			}
			if len(lacks) > 0 || len(columns) != 1 ||
				!slices.Equal(columns[0].Spans, []ColumnSpan{{Start: 5, Length: 2}}) {
				t.Fatalf("columns %v, lacks %v", columns, lacks)
			}
			file := columns[0].File
			data := file[len(file)-4*8:]
			var ids []int32
			for i := range 4 {
				ids = append(ids, int32(binary.LittleEndian.Uint32(data[8*i:])))
			}
			if !slices.Equal(ids, []int32{9, 4, 8, -1}) || len(file)%64 != 4*8%64 ||
				!strings.Contains(string(file), "'shape': (2, 2), }") {
				t.Errorf("the ids are %v in %q", ids, file)
			}
		})
	}
}

// raw are rows of one layer with two experts as SGLang writes them.
func raw(ids ...int32) packed {
	var data []byte
	for _, id := range ids {
		data = binary.LittleEndian.AppendUint32(data, uint32(id))
	}
	return data
}

// TestExperts: rows are those of the tokens from where they were asked for. Rows that were never
// written are not known, and what does not fit is no rows at all.
func TestExperts(t *testing.T) {
	want := &runfile.TokenColumns{RoutedExperts: &runfile.RoutedExperts{Layers: 1, TopK: 2, Experts: 300}}
	for name, c := range map[string]struct {
		rows  packed
		start *int
		from  int
		spans []ColumnSpan
	}{
		"all":               {raw(1, 2, 3, 4, 5, 6, 7, 8), nil, 0, []ColumnSpan{{0, 4, 0}}},
		"behind two":        {raw(5, 6, 7, 8), nil, 2, []ColumnSpan{{2, 2, 0}}},
		"all, though asked": {raw(1, 2, 3, 4, 5, 6, 7, 8), nil, 2, []ColumnSpan{{2, 2, 0}}},
		"never written":     {raw(1, 2, 0, 0, -1, 4, 7, 299), nil, 0, []ColumnSpan{{0, 1, 0}, {3, 1, 1}}},
		"not asked for":     {raw(1, 2, 3, 4, 5, 6, 7, 8), nil, -1, nil},
		"one too many":      {raw(1, 2, 3, 4, 5, 6, 7, 8, 9, 10), nil, 0, nil},
		"one too few":       {raw(1, 2, 3, 4, 5, 6), nil, 0, nil},
		"half a row":        {raw(1, 2, 3, 4, 5, 6, 7), nil, 0, nil},
		"of another start":  {raw(5, 6, 7, 8), new(int), 2, nil},
		"no such expert":    {raw(1, 2, 3, 4, 5, 6, 7, 300), nil, 0, nil},
		"none":              {nil, nil, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := Response{Choices: choices{{}}}
			r.Choices[0].MetaInfo.RoutedExperts, r.Choices[0].MetaInfo.RoutedExpertsStart = c.rows, c.start
			r.beside = r.readBeside(columnRequest{want, 3, c.from}, []int32{1, 2})
			columns, lacks := r.Columns(want, 3, []int32{1, 2}, -1)
			if c.spans == nil {
				if len(columns) > 0 || !slices.Equal(lacks, []string{runfile.ColumnRoutedExperts}) {
					t.Errorf("columns %v, lacks %v", columns, lacks)
				}
				return
			}
			if len(columns) != 1 || len(lacks) > 0 || !slices.Equal(columns[0].Spans, c.spans) {
				t.Fatalf("columns %v, lacks %v, want %v", columns, lacks, c.spans)
			}
			if last := columns[0].File[len(columns[0].File)-4:]; c.spans[0].Length == 4 &&
				!bytes.Equal(last, []byte{7, 0, 8, 0}) {
				t.Errorf("the last row is %v", last)
			}
		})
	}
	if from := []int{
		expertsFrom(*want.RoutedExperts, 4, 10, 100, 50), expertsFrom(*want.RoutedExperts, 4, 200, 100, 50),
		expertsFrom(*want.RoutedExperts, 4, 0, 5<<20, 50), expertsFrom(*want.RoutedExperts, 4, 0, 100, 5<<20),
	}; !slices.Equal(from, []int{10, 99, 5<<20 + 50 - want.RoutedExperts.Rows(4), -1}) {
		t.Errorf("asked from %v", from)
	}
}

// TestPackedBytes: base64 is read with JSON's escapes, and anything else is nothing.
func TestPackedBytes(t *testing.T) {
	data := []byte{0xff, 0xef, 0xbe}
	text := base64.StdEncoding.EncodeToString(data)
	for said, want := range map[string][]byte{`"` + text + `"`: data,
		`"` + strings.ReplaceAll(text, "/", `\/`) + `"`: data, `"` + text + `*"`: nil, "null": nil, "7": nil,
		"{}": nil, `[1]`: nil} {
		var p packed
		if err := json.Unmarshal([]byte(said), &p); err != nil || !bytes.Equal(p, want) {
			t.Errorf("%s is %v: %v", said, p, err)
		}
	}
}
