package wording

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

type inner struct {
	Count int8              `json:"count" yaml:"count"`
	Names []string          `json:"names" yaml:"names"`
	By    map[string]*inner `json:"by" yaml:"by"`
	Ratio *float64          `json:"ratio" yaml:"ratio"`
	Flag  bool              `json:"flag" yaml:"flag"`
	Text  string            `json:"text" yaml:"text"`
}

type outer struct {
	In inner `json:"in" yaml:"in"`
}

// TestPlain: both decoders say which type is wanted and which was given, without
// the names of Go's types.
func TestPlain(t *testing.T) {
	for text, want := range map[string]string{
		`{"in":{"count":"3"}}`:              "`in.count` must be an integer, got a string",
		`{"in":{"count":2.5}}`:              "`in.count` must be an integer, got 2.5",
		`{"in":{"count":300}}`:              "`in.count` must be an integer of its range, got 300",
		`{"in":{"count":[1]}}`:              "`in.count` must be an integer, got an array",
		`{"in":{"names":"a"}}`:              "`in.names` must be an array, got a string",
		`{"in":{"names":[true]}}`:           "`in.names` must be a string, got a boolean",
		`{"in":{"ratio":{}}}`:               "`in.ratio` must be a number, got an object",
		`{"in":{"flag":"false"}}`:           "`in.flag` must be a boolean, got a string",
		`{"in":{"text":5}}`:                 "`in.text` must be a string, got a number",
		`{"in":{"by":{"x":{"count":"3"}}}}`: "`in.by.count` must be an integer, got a string",
		`{"in":[]}`:                         "`in` must be an object, got an array",
		`[]`:                                "the value must be an object, got an array",
		`{"more":1}`:                        `unknown field "more"`,
		`{"in":`:                            "unexpected EOF",
	} {
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.DisallowUnknownFields()
		err := Plain(fmt.Errorf("read it: %w", decoder.Decode(new(outer))))
		if err.Error() != "read it: "+want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"in: {count: many}":      "[1:13] must be an integer, got a string",
		"in: {count: 300}":       "[1:13] must be an integer of its range, got 300",
		"in: {names: 5}":         "[1:13] int was used where sequence is expected",
		"in: {flag: 5}":          "[1:12] must be a boolean, got an integer",
		"in: {ratio: [1]}":       "must be",
		"in: {by: {x: {text: }}": "",
	} {
		err := Plain(yaml.UnmarshalWithOptions([]byte(text), new(outer), yaml.Strict()))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if err := Plain(fmt.Errorf("it: %w", io.EOF)); !errors.Is(err, io.EOF) || Plain(nil) != nil {
		t.Error(err)
	}
}
