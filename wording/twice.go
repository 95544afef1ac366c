package wording

import (
	"bytes"
	"encoding/json"
)

// Twice is a key that an object in a JSON document has twice; "" for none. Each reader decides for
// itself which of the values counts, so that such a document says nothing.
func Twice(document []byte) (key string) {
	type object struct {
		keys  map[string]bool // nil of a list
		value bool            // of the last key, comes next
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var around []*object
	for {
		token, err := decoder.Token()
		if err != nil {
			return ""
		}
		if inside := len(around) - 1; inside >= 0 && around[inside].keys != nil && token != json.Delim('}') {
			in := around[inside]
			if !in.value {
				name, _ := token.(string)
				if in.keys[name] {
					return name
				}
				in.keys[name], in.value = true, true
				continue
			}
			in.value = false
		}
		switch token {
		case json.Delim('{'):
			around = append(around, &object{keys: map[string]bool{}})
		case json.Delim('['):
			around = append(around, &object{})
		case json.Delim('}'), json.Delim(']'):
			around = around[:len(around)-1]
		}
	}
}
