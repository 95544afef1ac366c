package quality

import (
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/bench/index/quality/functions"
)

func TestTextbook(t *testing.T) {
	if got, want := plainWords("HTTPServer.readAll(x_1, naïveÉtat) "),
		[]string{"httpserver", "read", "all", "x", "1", "naïve", "état"}; !slices.Equal(got, want) {
		t.Errorf("words %q, want %q", got, want)
	}
	f := func(text string) functions.Function { return functions.Function{Text: text} }
	set := &Set{Functions: []functions.Function{
		f("open file"), f("file file file file file file file file"),
		f("close fileHandle now and then and then and then"), f("nothing"), f("open file now"),
	}}
	b := set.Textbook()
	for question, want := range map[string][]int{
		"open file":  {0, 4, 1, 2}, // the shorter of two that have both; a word oft repeated counts for less than two
		"file close": {2, 1, 0, 4}, // a rare word weighs more than a frequent one
		"handle":     {2},
		"unheard of": {},
	} {
		t.Run(question, func(t *testing.T) {
			if got, err := b.Rank(t.Context(), question); err != nil || !slices.Equal(got, want) {
				t.Errorf("%q: %v, %v; want %v", question, got, err, want)
			}
		})
	}
}
