package tools

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// TestMeant: arguments become what the schema lets them mean, or are refused in its words. A case
// without either stays as it was written.
func TestMeant(t *testing.T) {
	text, err := os.ReadFile("testdata/arguments.json")
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		Schema map[string]any
		Cases  []struct {
			Given, Refused string
			Meant, Schema  map[string]any
		}
	}
	if err := json.Unmarshal(text, &table); err != nil {
		t.Fatal(err)
	}
	for _, c := range table.Cases {
		of := tool{schema: table.Schema}
		if c.Schema != nil {
			of.schema = c.Schema
		}
		got, refused := of.repair(c.Given)
		switch {
		case refused != c.Refused:
			t.Errorf("%s: refused by %q, want %q", c.Given, refused, c.Refused)
		case c.Meant == nil:
			if got != c.Given {
				t.Errorf("%s became %s", c.Given, got)
			}
		default:
			var value map[string]any
			if err := json.Unmarshal([]byte(got), &value); err != nil || !reflect.DeepEqual(value, c.Meant) {
				t.Errorf("%s means %s (%v), want %v", c.Given, got, err, c.Meant)
			}
			if again, refused := of.repair(got); again != got || refused != "" {
				t.Errorf("%s means %s, and that %s %s", c.Given, got, again, refused)
			}
		}
	}
	if len(table.Cases) < 60 {
		t.Errorf("%d cases", len(table.Cases))
	}
}

// TestMeantKeepsText: what is quoted inside stays letter for letter, also where
// another argument is mended.
func TestMeantKeepsText(t *testing.T) {
	set, err := NewSet(toolset.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	contents := "<a href=\"x\">\u2028&\x00\r\n\t{\"n\": 1.0}"
	quoted, _ := json.Marshal(contents)
	calls := set.repairCalls([]Call{{Name: "search_replace",
		Arguments: `{"file_path":"a","old_string":"b","new_string":` + string(quoted) + `,"replace_all":"true"}`}})
	var a searchReplaceArguments
	if err := json.Unmarshal([]byte(calls[0].Arguments), &a); err != nil || *a.NewString != contents || !a.ReplaceAll {
		t.Errorf("%s %v", calls[0].Arguments, err)
	}
}

// TestMeantIsBounded: a schema that is deep, wide or refers to itself costs
// no more than it has bytes.
func TestMeantIsBounded(t *testing.T) {
	deep := map[string]any{"type": "integer"}
	for range 300 {
		deep = map[string]any{"type": "array", "items": map[string]any{"anyOf": []any{deep,
			map[string]any{"type": "null"}}}}
	}
	for _, schema := range map[string]map[string]any{
		"deep": {"type": "object", "properties": map[string]any{"a": deep}},
		"itself": {"type": "object",
			"properties": map[string]any{"a": map[string]any{
				"anyOf": []any{map[string]any{"$ref": "#/properties/a"}}}}},
		"circle": {"type": "object", "properties": map[string]any{"a": map[string]any{"$ref": "#/properties/a"}}},
	} {
		of := tool{schema: schema}
		for _, value := range []string{`"x"`, `1`, strings.Repeat("[", 300) + strings.Repeat("]", 300)} {
			of.repair(`{"a":` + value + `}`) // it ends
		}
	}
	long := `{"a":"` + strings.Repeat("é", 1000) + `"}`
	of := tool{schema: map[string]any{"type": "object",
		"properties": map[string]any{"a": map[string]any{"type": "integer"}}}}
	if _, refused := of.repair(long); len(refused) > 200 || !strings.HasSuffix(refused, `é…"`) {
		t.Errorf("%q", refused)
	}
}
