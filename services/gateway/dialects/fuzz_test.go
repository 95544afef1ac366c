package dialects

import (
	"slices"
	"strings"
	"testing"
)

// FuzzParts: a text in parts is the text, and each part is one.
func FuzzParts(f *testing.F) {
	f.Add(strings.Repeat("漢", 3000))
	f.Add(strings.Repeat("🙂x", 2500))
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.ToValidUTF8(strings.Repeat(text, 1+len(text)%50), "?")
		list := slices.Collect(parts(text))
		if strings.Join(list, "") != text {
			t.Fatal("the parts are another text")
		}
		for _, p := range list {
			if len(p) == 0 || len(p) > pieceSize || strings.ToValidUTF8(p, "") != p {
				t.Fatalf("a part of %d bytes is no text", len(p))
			}
		}
	})
}
