package storage

import (
	"encoding/json"
	"reflect"
	"testing"
	"unicode/utf8"
)

func FuzzParseHeader(f *testing.F) {
	for _, text := range []string{
		`{"ce-id":["r/x"],"Twice":["a","b"]}`, `{}`, `null`, `{"a":[]}`, `{"a":null}`, `{"a":["x"],"a":["y"]}`,
		`{"a":["\u00e9"]}`, `{"é":["é"]}`,
		`{"a":["x"]} `, `{"a":["x"],}`, `{"a":["x"]}}`, `{"a":["x",]}`, `{"a":"x"}`, `[]`, `{"a":["x"`,
		`{"":[""]}`, "{\"a\":[\"\x01\"]}",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return // the column is UTF-8
		}
		var want map[string][]string
		wantErr := json.Unmarshal([]byte(text), &want)
		got, err := parseHeader(text)
		if (err == nil) != (wantErr == nil) || err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v, %v; package json reads %v, %v", text, got, err, want, wantErr)
		}
	})
}

func TestQuickHeader(t *testing.T) {
	header := map[string][]string{"ce-id": {"r/rollout.g000001-0/turn_sampled/0"}, "Twice": {"a", "b"}}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := quickHeader(string(text)); !ok || !reflect.DeepEqual(got, header) {
		t.Errorf("%s was read as %v, %v", text, got, ok)
	}
}
