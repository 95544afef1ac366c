package storage

import (
	"encoding/json"
	"strings"
)

// parseHeader reads a record's headers. They are most of what a segment costs to read, and nearly
// all are what quickHeader knows; the rest takes the long way.
func parseHeader(text string) (map[string][]string, error) {
	if header, ok := quickHeader(text); ok {
		return header, nil
	}
	var header map[string][]string
	err := json.Unmarshal([]byte(text), &header)
	return header, err
}

// quickHeader reads what EncodeSegment writes for headers of plain text: {"name":["value",…],…}
// without spaces and escapes. What it reads, it reads as package json does.
func quickHeader(text string) (map[string][]string, bool) {
	rest, ok := strings.CutPrefix(text, "{")
	header := make(map[string][]string, 10)
	for ok {
		var name, value string
		if name, rest, ok = quickString(rest); !ok {
			break
		}
		if rest, ok = strings.CutPrefix(rest, ":["); !ok {
			break
		}
		values := make([]string, 0, 1)
		for {
			if value, rest, ok = quickString(rest); !ok {
				return nil, false
			}
			values = append(values, value)
			if rest, ok = strings.CutPrefix(rest, ","); !ok {
				break
			}
		}
		if rest, ok = strings.CutPrefix(rest, "]"); !ok {
			break
		}
		header[name] = values
		if rest == "}" {
			return header, true
		}
		rest, ok = strings.CutPrefix(rest, ",")
	}
	return nil, false
}

// quickString takes a JSON string without escapes off the front.
func quickString(text string) (value, rest string, ok bool) {
	if text == "" || text[0] != '"' {
		return "", text, false
	}
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return text[1:i], text[i+1:], true
		case c == '\\' || c < ' ':
			return "", text, false
		}
	}
	return "", text, false
}
