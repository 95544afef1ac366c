package bench

import (
	"strings"
	"testing"
)

// TestFigures: a result is printed by the names of its JSON, in its order; lists of objects are
// tables, and a list within them is one cell.
func TestFigures(t *testing.T) {
	type part struct {
		Files int     `json:"files"`
		MS    float64 `json:"ms"`
	}
	type row struct {
		Name  string `json:"name"`
		Ages  []int  `json:"ages"`
		Parts []part `json:"parts,omitempty"`
	}
	r := struct {
		Ratio float64        `json:"ratio"`
		Bytes int            `json:"bytes"`
		Raw   map[string]any `json:"raw"`
		Rows  []row          `json:"rows"`
	}{0.123456, 1048576, map[string]any{"p50": 1.5, "why": nil},
		[]row{{"a", []int{1, 2}, nil}, {"b c", nil, []part{{1, 0.5}, {10, 2}}}}}
	var b strings.Builder
	if err := printFigures(&b, r); err != nil {
		t.Fatal(err)
	}
	const want = `ratio     0.1235
bytes    1048576
raw.p50      1.5
raw.why

rows:
name  ages  parts
a     1, 2
b c         files 1, ms 0.5; files 10, ms 2
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}
