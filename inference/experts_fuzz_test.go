package inference

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
)

// FuzzColumns: whatever a server says beside its tokens, it is left out or is rows of these tokens:
// as many as there are places for, with numbers of experts that there are.
func FuzzColumns(f *testing.F) {
	good := newNPY("'|u1'", 4, 2, 2)
	good.data = append(good.data, bytes.Repeat([]byte{1, 2, 3, 0}, 4)...)
	f.Add(base64.StdEncoding.EncodeToString(good.data), false, `[[7,8],[9]]`,
		`[[[-0.5,7,null],[-1,8,null]],[[-0.1,9,null]]]`)
	f.Add(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1, 0, 0, 0}, 16)), true,
		`[[7],[9,9]]`, `[[["NaN",7]],[]]`)
	f.Add(`{"data":1}`, true, `null`, `{}`)
	want := &runfile.TokenColumns{RoutedExperts: &runfile.RoutedExperts{Layers: 2, TopK: 2, Experts: 8},
		TopLogprobs: 2, SamplingMask: true}
	f.Fuzz(func(t *testing.T, experts string, native bool, mask, tops string) {
		quoted, _ := json.Marshal(experts)
		text := `{"choices":[{"token_ids":[7,9],"routed_experts":` + string(quoted) + `,"meta_info":{}}]}`
		if native {
			text = `{"choices":[{"token_ids":[7,9],"meta_info":{"routed_experts":` + string(quoted) + `}}]}`
		}
		var r Response
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatal(err)
		}
		for into, said := range map[any]string{&r.Choices[0].SamplingMask: mask,
			&r.Choices[0].MetaInfo.OutputTopLogprobs: tops} {
			if json.Valid([]byte(said)) {
				if err := json.Unmarshal([]byte(said), into); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.beside = r.readBeside(columnRequest{want, 3, 0}, []int32{7, 9})
		columns, lacks := r.Columns(want, 3, []int32{7, 9}, -1)
		for _, c := range columns {
			rows, end := 0, 0
			for _, s := range c.Spans {
				if s.Length < 1 || s.Start < end || s.Row != rows || s.Start+s.Length > 5 {
					t.Fatalf("%s: spans %v", c.Name, c.Spans)
				}
				rows, end = rows+s.Length, s.Start+s.Length
			}
			if c.Name != runfile.ColumnRoutedExperts {
				continue
			}
			array, err := readNPY(c.File)
			if err != nil || array.shape[0] != rows ||
				bytes.ContainsFunc(array.data, func(r rune) bool { return r > 7 }) {
				t.Fatalf("%d rows in %v: %v", rows, array.shape, err)
			}
		}
		if strings.Contains(strings.Join(lacks, " "), "  ") || len(lacks) > 3 {
			t.Fatal(lacks)
		}
	})
}
