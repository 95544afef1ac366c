package tools

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestCheckable: a schema that would take hours to check by is told from those that are in use.
func TestCheckable(t *testing.T) {
	doubling := `{"type":"object","properties":{"a":{"$ref":"#/$defs/l0"}},"$defs":{`
	for i := range 40 {
		doubling += fmt.Sprintf(`"l%d":{"anyOf":[{"$ref":"#/$defs/l%d"},{"$ref":"#/$defs/l%d"}]},`, i, i+1, i+1)
	}
	doubling += `"l40":{"type":"string"}}}`
	for _, c := range []struct {
		schema    string
		arguments int
		want      bool
	}{
		{`{"type":"object","properties":{"$ref":{"type":"string"},"n":{"type":"integer"}}}`, 1 << 20, true},
		{`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"},"b":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"string"}}}`, 1 << 10, true},
		{doubling, 10, false},
		{`{"type":"object","properties":{"a":{"$ref":"#"}}}`, 10, false},
		{`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"allOf":[{"$ref":"#/$defs/x"}]}}}`, 10,
			false},
		{`{"type":"object","properties":{"a":{"$ref":"#name"}}}`, 10, false},
		{`{"type":"object","properties":{"a":{"items":{"anyOf":[` + strings.Repeat(`{"type":"null"},`, 100) + `{}]}}}}`,
			1 << 20, false},
	} {
		var schema map[string]any
		if err := json.Unmarshal([]byte(c.schema), &schema); err != nil {
			t.Fatal(err)
		}
		if got := checkable(schema, strings.Repeat("x", c.arguments)); got != c.want {
			t.Errorf("%.100s with %d bytes: %t", c.schema, c.arguments, got)
		}
	}
}
