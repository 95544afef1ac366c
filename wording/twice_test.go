package wording

import "testing"

func TestTwice(t *testing.T) {
	for document, want := range map[string]string{
		`{"a": 1, "b": {"a": [1, {"a": 2}]}, "c": ["a", "a"]}`: "",
		`[{"a": 1}, {"a": 1}]`:                                 "",
		`{"a": "b", "b": "a"}`:                                 "",
		`"a"`:                                                  "",
		``:                                                     "",
		`{"a": 1, "a": 1}`:                                     "a",
		`{"a": {"b": {}, "b": 0}}`:                             "b",
		`[{}, {"c": [], "c": 1}]`:                              "c",
		`{"\u0061": 1, "a": 2}`:                                "a",
	} {
		if got := Twice([]byte(document)); got != want {
			t.Errorf("%s: %q, want %q", document, got, want)
		}
	}
}
