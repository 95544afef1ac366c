package events

import (
	"reflect"
	"testing"
)

// TestVersionSpans: spans say of each token one version, and are no more than the bound.
func TestVersionSpans(t *testing.T) {
	of := func(n int) (spans []VersionSpan) {
		for i := range n {
			spans = append(spans, VersionSpan{Version: int64(i), Start: i, End: i + 1})
		}
		return spans
	}
	for name, c := range map[string]struct {
		spans  []VersionSpan
		tokens int
		good   bool
	}{
		"none":             {nil, 9, true},
		"as many as may":   {of(MaxVersionSpans), MaxVersionSpans, true},
		"one too many":     {of(MaxVersionSpans + 1), MaxVersionSpans + 1, false},
		"tokens uncounted": {of(3), -1, true},
		"of fewer tokens":  {of(3), 2, false},
		"of no tokens":     {of(3), 0, false},
		"a version of -2":  {[]VersionSpan{{Version: -2, End: 1}}, 1, false},
	} {
		if err := CheckVersionSpans(c.spans, c.tokens); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSetVersions: the version of a turn is the oldest of its tokens, and unknown where one is.
// What it is given stays as it was.
func TestSetVersions(t *testing.T) {
	given := []VersionSpan{{7, 0, 1}, {7, 1, 3}, {9, 3, 4}}
	var turn TurnSampled
	turn.SetVersions(given)
	if want := []VersionSpan{{7, 0, 3}, {9, 3, 4}}; turn.PolicyVersion != 7 || turn.LatestVersion() != 9 ||
		!reflect.DeepEqual(turn.VersionSpans, want) {
		t.Errorf("%d, %+v", turn.PolicyVersion, turn.VersionSpans)
	}
	if given[0].End != 1 {
		t.Error("the spans that were given are changed")
	}
	turn.SetVersions([]VersionSpan{{7, 0, 1}, {-1, 1, 3}, {9, 3, 4}})
	if turn.PolicyVersion != -1 || turn.LatestVersion() != 9 || len(turn.VersionSpans) != 3 {
		t.Errorf("%d, %+v", turn.PolicyVersion, turn.VersionSpans)
	}
	turn.SetVersions(given[:2])
	if turn.PolicyVersion != 7 || turn.LatestVersion() != 7 || turn.VersionSpans != nil {
		t.Errorf("%d, %+v", turn.PolicyVersion, turn.VersionSpans)
	}
}
