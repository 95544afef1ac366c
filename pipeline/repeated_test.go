package pipeline

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestShortened(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for _, c := range []struct{ a, b, wantA, wantB string }{
		{"", "", "", ""},
		{"1", "0", "1", "0"},
		{"same but one", "same but two", "same but one", "same but two"},
		{long + "a", long + "b", "…" + long[:40] + "a", "…" + long[:40] + "b"},
		{"a" + long, "b", "a" + long[:199] + "…", "b"},
		{long, long + "b", "…" + long[:40], "…" + long[:40] + "b"},
	} {
		if a, b := shortened(c.a, c.b); a != c.wantA || b != c.wantB {
			t.Errorf("%.50q and %.50q became %q and %q", c.a, c.b, a, b)
		}
	}
}

// FuzzShortened: what is different stays different, is short, and is text.
func FuzzShortened(f *testing.F) {
	f.Add("a", "b")
	f.Add(strings.Repeat("ä", 100)+"x", strings.Repeat("ä", 100)+"ö")
	f.Fuzz(func(t *testing.T, a, b string) {
		if !utf8.ValidString(a) || !utf8.ValidString(b) {
			t.Skip("values are text")
		}
		x, y := shortened(a, b)
		if (a == b) != (x == y) {
			t.Errorf("%q and %q became %q and %q", a, b, x, y)
		}
		if len(x) > 210 || len(y) > 210 || !utf8.ValidString(x) || !utf8.ValidString(y) {
			t.Errorf("%d bytes %q, %d bytes %q", len(x), x, len(y), y)
		}
	})
}
