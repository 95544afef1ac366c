package fields

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

var tools = reflect.TypeFor[[]tool]()

type tool struct {
	Name   string            `json:"name"`
	Schema json.RawMessage   `json:"schema"`
	Env    map[string]string `json:"env"`
	One    *tool             `json:"one"`
	Tools  []tool            `json:"tools"`
}

// TestDecodedKeys: of all objects that are read, a key that is read is there once, as it is
// spelled; other keys, and those within values that are free, may be any.
func TestDecodedKeys(t *testing.T) {
	for raw, says := range map[string]string{
		`{"Name":"a"}`:                               `"Name": it is spelled name`,
		`{"name":"a","NAME":"b"}`:                    `"NAME": it is spelled name`,
		`{"\u004eame":"a"}`:                          `"Name": it is spelled name`,
		"{\"tool\u017f\":[]}":                        `it is spelled tools`,
		`{"one":{"Name":"a"}}`:                       `one: "Name": it is spelled name`,
		`{"tools":[{},{"x":[{"Name":1}],"Env":{}}]}`: `tools: [1]: "Env": it is spelled env`,
		`{"tools":[{"Name":"a"}],"tools":[]}`:        `tools: [0]: "Name": it is spelled name`,
		`{"tools":[],"tools":[{"Name":"a"}]}`:        `tools: the object has it more than once`,
		`{"name":"a", "n\u0061me":"b"}`:              `name: the object has it more than once`,
		`{"one":{"name":"\"}","name":""}}`:           `one: name: the object has it more than once`,
		`{"name":5}`:                                 "`name` must be a string, got a number",
		`{"tools":{}}`:                               "`tools` must be an array, got an object",
		`[]`:                                         "the value must be an object, got an array",
		`{"name":"a"`:                                "unexpected end of JSON input",
		strings.Repeat(`{"one":`, 40) + `{}` + strings.Repeat(`}`, 40): "want at most 16 objects and lists",
	} {
		var read tool
		err := Decode(json.RawMessage(raw), &read)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "json:") {
			t.Errorf("%s: %v, want %s", raw, err, says)
		}
	}
	for _, raw := range []string{
		`null`, ` { } `, `{"one":null,"tools":null}`, `{"tools":[null,{"name":"\\"},{}]}`,
		`{"schema":{"Name":{"Name":1,"name":2,"name":3}},"env":{"Name":"a","NAME":"b","tools":"c"}}`,
		`{"x":{"Name":1},"x":[{"NAME":"]}\""}],"X":0,"name":"a"}`,
	} {
		if err := Decode(json.RawMessage(raw), new(tool)); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// TestExact: of an object alone, not of those within.
func TestExact(t *testing.T) {
	for raw, says := range map[string]string{
		`{"URL":"a"}`: "it is spelled url", `{"url":1,"url":2}`: "more than once",
		`[]`: "want an object", `"url"`: "want an object", ``: "want an object",
	} {
		if err := Exact(json.RawMessage(raw), "url"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %s", raw, err, says)
		}
	}
	for _, raw := range []string{`null`, `{}`, `{"url":{"URL":1},"x":1,"x":2}`} {
		if err := Exact(json.RawMessage(raw), "url"); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// TestNothingCopied: a request of many small objects is looked at in one go, without memory for
// each of them.
func TestNothingCopied(t *testing.T) {
	raw := json.RawMessage("[" + strings.Repeat(`{"name":"a","tools":[{}],"x":[{}]},`, 10_000) + "{}]")
	s := shapes.find(tools)
	if n := testing.AllocsPerRun(2, func() {
		w := walk{text: raw}
		if err := w.value(s, mostNested); err != nil || w.at != len(raw) {
			t.Errorf("at %d of %d: %v", w.at, len(raw), err)
		}
	}); n > 2 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzWalk: a text that is no JSON is left to the decoder, and the walk comes to its end.
func FuzzWalk(f *testing.F) {
	for _, seed := range []string{`{"name":[}`, `[{]`, `{"a":}`, `{"\`, `{"`, `[[`, `{"tools":[{"name"`, `,`, `{}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var list []tool
		err := Decode(raw, &list)
		w := walk{text: raw}
		if walked := w.value(shapes.find(tools), mostNested); err == nil && walked != nil {
			t.Fatal(walked)
		}
		Exact(raw, "name")
		CountKeys(raw)
	})
}
