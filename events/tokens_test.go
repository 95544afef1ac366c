package events

import (
	"math"
	"testing"
)

func TestTokenSumsSaturate(t *testing.T) {
	const most = math.MaxInt64
	for _, c := range [][3]int64{{1, 2, 3}, {most, 1, most}, {most, most, most}, {1, most - 1, most}, {-5, 7, 7},
		{math.MinInt64, math.MinInt64, 0}, {0, most, most}} {
		if got := AddTokens(c[0], c[1]); got != c[2] {
			t.Errorf("%d and %d are %d, want %d", c[0], c[1], got, c[2])
		}
	}
	for _, c := range []struct{ prompt, completion, want int }{{3, 4, 7}, {math.MaxInt, 1, math.MaxInt},
		{math.MaxInt, math.MaxInt, math.MaxInt}, {-1, 2, 2}} {
		if got := (TurnSampled{PromptTokens: c.prompt, CompletionTokens: c.completion}).Used(); got != c.want {
			t.Errorf("%d and %d are %d, want %d", c.prompt, c.completion, got, c.want)
		}
	}
}
