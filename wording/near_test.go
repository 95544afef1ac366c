package wording

import "testing"

// TestNear: a name is taken for one that few changes make of it, or that it begins, and for none
// where that would be a guess.
func TestNear(t *testing.T) {
	known := []string{"show", "run", "list", "staleness", "gap", "id", "turns"}
	for name, want := range map[string]string{
		"shwo": "show", "rn": "run", "stale": "staleness", "stalenes": "staleness", "turn": "turns", "Run": "run",
		"gaps": "gap", "": "", "x": "", "st": "", "something": "", "lost": "list",
	} {
		if got := Nearest(name, known); got != want {
			t.Errorf("%q is taken for %q, want %q", name, got, want)
		}
	}
	if got := Nearest("lest", []string{"best", "lost", "list"}); got != "lost" {
		t.Errorf("%q is taken", got)
	}
	if got := Suggestion("shwo", known); got != `, did you mean "show"?` {
		t.Error(got)
	}
	if got := Suggestion("something", known); got != "" {
		t.Error(got)
	}
}
