package tools

import (
	"encoding/json"
	"strconv"
	"strings"
)

// Values of JSON, as they are decoded with numbers as they are written, and the types that
// JSON Schema has for them.

func listOf(v any) []any {
	list, _ := v.([]any)
	return list
}

// typesOf are the types that a schema names.
func typesOf(s map[string]any) (types []string) {
	switch t := s["type"].(type) {
	case string:
		return []string{t}
	case []any:
		for _, one := range t {
			if name, ok := one.(string); ok {
				types = append(types, name)
			}
		}
	}
	return types
}

// isOf reports whether a value has a type of JSON Schema.
func isOf(t string, v any) bool {
	switch v := v.(type) {
	case nil:
		return t == "null"
	case bool:
		return t == "boolean"
	case string:
		return t == "string"
	case []any:
		return t == "array"
	case map[string]any:
		return t == "object"
	case json.Number:
		_, whole := wholeNumber(v)
		return t == "number" || t == "integer" && whole
	}
	return false
}

// wholeNumber is a number without a fraction in digits alone.
func wholeNumber(v any) (any, bool) {
	number, ok := v.(json.Number)
	if !ok {
		return nil, false
	}
	if !strings.ContainsAny(number.String(), ".eE") {
		return number, true
	}
	f, err := number.Float64()
	const exact = 1 << 53
	if whole := int64(f); err == nil && f >= -exact && f <= exact && float64(whole) == f {
		return json.Number(strconv.FormatInt(whole, 10)), true
	}
	return nil, false
}

// copied is a value whose lists and objects may be changed.
func copied(v any) any {
	switch v := v.(type) {
	case map[string]any:
		c := make(map[string]any, len(v))
		for name, one := range v {
			c[name] = copied(one)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i, one := range v {
			c[i] = copied(one)
		}
		return c
	}
	return v
}

func encoded(v any) string {
	text, _ := json.Marshal(v) // it was JSON
	return string(text)
}
